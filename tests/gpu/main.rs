//! Everything that needs a GPU. Runs on a host that has only a driver; without a GPU each test says why it is skipped.

#[path = "../common/api.rs"]
mod api;
mod bad_input;
mod block;
mod calls;
#[path = "../common/mod.rs"]
mod common;
mod failures;
mod handles;
mod intermediates;
mod lifetimes;
#[path = "../cpu/oracle.rs"]
mod oracle;
mod precision;
mod processes;
mod rig;
mod stages;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use solve::cuda::arch::Arch;
use solve::cuda::driver::Driver;
use solve::cuda::portable::plan::Gemm;

fn main() -> std::process::ExitCode {
    if processes::child() {
        return std::process::ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // They share the GPU, and some look at its free memory.
    arguments.test_threads = Some(1);

    let mut trials = Vec::new();
    for arch in Arch::ALL {
        let mut push = |name: &str, test: fn(Arch)| {
            let why_not = move || {
                let missing = !rig::archs().contains(&arch);
                missing.then(|| format!("this GPU or build has no {}", arch.name()))
            };
            trials.push(trial(format!("{}::{name}", arch.name()), why_not, move || test(arch)));
        };
        if arch != Arch::Sm90a {
            push("stage::cast_and_layernorm", stages::cast_and_layernorm);
            push("stage::layernorm", stages::layernorm);
            push("stage::gemm_qkv", |arch| stages::gemm(arch, Gemm::Qkv));
            push("stage::gemm_attn_proj", |arch| stages::gemm(arch, Gemm::AttnProj));
            push("stage::gemm_fc", |arch| stages::gemm(arch, Gemm::Fc));
            push("stage::gemm_proj", |arch| stages::gemm(arch, Gemm::Proj));
            push("stage::attention", |arch| stages::attention(arch, false));
            push("stage::attention_causal", |arch| stages::attention(arch, true));
            push("stage::no_local_memory", stages::no_local_memory);
        }
        push("intermediates::stages", intermediates::stages);
        if arch == Arch::Sm90a {
            push("intermediates::hopper_forms", intermediates::hopper_forms);
            push("intermediates::fewer_multiprocessors", intermediates::fewer_multiprocessors);
        }
        push("block::sizes", block::sizes);
        push("block::fewer_multiprocessors", block::fewer_multiprocessors);
        push("block::flat_rows", block::flat_rows);
        push("block::misaligned", block::misaligned);
        push("block::from_host", block::from_host);
        push("block::prepared", block::prepared);
        push("block::single_tokens", block::single_tokens);
        push("block::long_keys", block::long_keys);
        push("block::long_query", block::long_query);
        push("block::long_sequence", block::long_sequence);
        push("failures::update_half_way", failures::update_half_way);
        push("failures::solve_half_way", failures::solve_half_way);
        push("failures::no_memory_for_a_kernel", failures::no_memory_for_a_kernel);
        push("failures::stream_that_is_gone", failures::stream_that_is_gone);
        push("precision::exact", precision::exact);
        push("precision::exact_of_many_rows", precision::exact_of_many_rows);
        push("precision::exact_on_uneven_weights", precision::exact_on_uneven_weights);
        push("precision::exact_repeats", precision::exact_repeats);
        push("precision::rescue", precision::rescue);
        push("precision::rescue_in_place", precision::rescue_in_place);
        push("precision::rescue_in_place_close_behind", precision::rescue_in_place_close_behind);
        push("precision::rescue_misaligned", precision::rescue_misaligned);
        push("precision::rescue_on_fewer_multiprocessors", precision::rescue_on_fewer_multiprocessors);
        push("precision::usual_after_unusual", precision::usual_after_unusual);
        push("precision::usual_behind_fp32", precision::usual_behind_fp32);
        push("precision::in_any_order", precision::in_any_order);
        push("precision::large_scores", precision::large_scores);
        push("precision::finite_at_extremes", precision::finite_at_extremes);
        push("precision::forgotten_graphs", precision::forgotten_graphs);
        push("precision::one_rule", precision::one_rule);
        push("precision::every_alarm", precision::every_alarm);
        push("precision::blocks", precision::blocks);
        push("precision::quiet_blocks", precision::quiet_blocks);
        push("precision::shifted_rows", precision::shifted_rows);
        if arch == Arch::Sm90a {
            push("precision::few_rows", precision::few_rows);
        }
        push("precision::large_product", precision::large_product);
        push("precision::update", precision::update);
        push("precision::update_at_once", precision::update_at_once);
        push("precision::update_in_graphs", precision::update_in_graphs);
        push("precision::at_the_same_time", precision::at_the_same_time);
        push("precision::long_sequence", precision::long_sequence);
    }
    let plain: [(&str, fn()); 37] = [
        ("calls::memory_kinds", calls::memory_kinds),
        ("calls::managed_beside_device", calls::managed_beside_device),
        ("calls::context_is_restored", calls::context_is_restored),
        ("calls::memory_of_another_context", calls::memory_of_another_context),
        ("calls::order", calls::order),
        ("calls::threads", calls::threads),
        ("calls::warm_calls_allocate_nothing", calls::warm_calls_allocate_nothing),
        ("calls::handle_streams", calls::handle_streams),
        ("calls::a_second_stream_later", calls::a_second_stream_later),
        ("calls::close_behind", calls::close_behind),
        ("calls::solve_close_behind", calls::solve_close_behind),
        ("calls::graph_capture", calls::graph_capture),
        ("calls::captured_in_turn", calls::captured_in_turn),
        ("calls::handle_on_host_memory", calls::handle_on_host_memory),
        ("calls::captured_side_by_side", calls::captured_side_by_side),
        ("calls::captured_into_one_graph", calls::captured_into_one_graph),
        ("handles::memory_kinds", handles::memory_kinds),
        ("handles::threads", handles::threads),
        ("handles::beside_a_call_that_waits", handles::beside_a_call_that_waits),
        ("lifetimes::refused_captures", lifetimes::refused_captures),
        ("lifetimes::beside_a_capture", lifetimes::beside_a_capture),
        ("lifetimes::destroy_behind_a_graph", lifetimes::destroy_behind_a_graph),
        ("lifetimes::green_context", lifetimes::green_context),
        ("lifetimes::full_device", lifetimes::full_device),
        ("bad_input::solve_table", bad_input::solve_table),
        ("bad_input::forward_and_update_table", bad_input::forward_and_update_table),
        ("bad_input::read_only_memory", bad_input::read_only_memory),
        ("bad_input::mapped_in_part", bad_input::mapped_in_part),
        ("bad_input::short_beside_another", bad_input::short_beside_another),
        ("bad_input::handle_table", bad_input::handle_table),
        ("processes::first_call", processes::first_call),
        ("processes::chosen_path", processes::chosen_path),
        ("processes::chosen_precision", processes::chosen_precision),
        ("processes::cooperative_grids_beside", processes::cooperative_grids_beside),
        ("processes::fault", processes::fault),
        ("processes::early_fault", processes::early_fault),
        ("processes::reset", processes::reset),
    ];
    trials.extend(plain.into_iter().map(|(name, test)| trial(name.into(), || None, test)));
    let one_gpu = || (rig::driver().map_or(0, Driver::count) < 2).then(|| "this machine has one GPU".to_string());
    let no_peers =
        move || one_gpu().or_else(|| (!rig::are_peers(1, 0)).then(|| "device 1 cannot reach device 0".into()));
    trials.push(trial("calls::second_device".into(), one_gpu, calls::second_device));
    trials.push(trial("calls::writable_from_another_device".into(), no_peers, calls::writable_from_another_device));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test, or the reason that there is none here.
fn trial(
    name: String,
    why_not: impl FnOnce() -> Option<String> + Send + 'static,
    test: impl FnOnce() + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || -> Result<Completion, Failed> {
        if let Some(reason) = rig::driver().err().or_else(why_not) {
            return Ok(Completion::ignored_with(format!("skipped: {reason}")));
        }
        rig::enter(0);
        test();
        Ok(Completion::Completed)
    })
}
