// Handles that outlive main and their thread: destroyed by static and thread-local objects, and by a function given to atexit.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "solve.h"

namespace {

struct Destroy {
    void operator()(solve_block *block) const {
        solve_status status = solve_block_destroy(block);
        if (status != SOLVE_STATUS_OK || solve_last_status() != status || solve_last_error()[0] != '\0') {
            std::printf("FAILED: destroy: %s\n", solve_status_string(status));
            std::fflush(stdout);
            std::_Exit(1);
        }
    }
};
using Block = std::unique_ptr<solve_block, Destroy>;

Block of_the_process, of_atexit;
thread_local Block of_the_thread;

void leave() { of_atexit.reset(); }

Block create(const std::vector<float> &weights) {
    solve_block *block = nullptr;
    solve_options options = SOLVE_OPTIONS_DEFAULT;
    options.max_tokens = 1;
    if (solve_block_create(weights.data(), &options, &block) != SOLVE_STATUS_OK) {
        std::printf("FAILED: create: %s\n", solve_last_error());
        std::exit(1);
    }
    return Block(block);
}

}  // namespace

int main() {
    std::vector<float> weights(SOLVE_WEIGHTS_LEN, 0.01f);
    // Before the library has anything of this thread's, so that it goes after that.
    of_the_thread = nullptr;
    std::atexit(leave);
    of_the_thread = create(weights);
    of_the_process = create(weights);
    of_atexit = create(weights);
    std::thread([&weights] {
        of_the_thread = nullptr;
        of_the_thread = create(weights);
    }).join();
    return 0;
}
