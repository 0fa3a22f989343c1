/* The library as a program uses it that is linked with -lsolve. */
#include "driver.h"

int main(int argc, char **argv) {
    const solve_api api = {solve,
                           solve_last_status,
                           solve_last_error,
                           solve_status_string,
                           solve_version,
                           solve_build_id,
                           solve_block_create,
                           solve_block_forward,
                           solve_block_update,
                           solve_block_destroy};
    return drive(&api, parse_seq_len(argc, argv), 1) != 0;
}
