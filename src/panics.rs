//! A panic in a call becomes a status. It is not printed, whichever thread of the library it is in.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`. A panic is what it said.
pub fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                print(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    QUIET.set(before);
    outcome.map_err(|panic| text_of(panic.as_ref()))
}

/// This thread works for calls and for nothing else.
pub fn quiet() {
    QUIET.set(true);
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    said.unwrap_or("no message").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    thread_local! {
        static PRINTED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_panic_is_silent_in_a_call_alone() {
        // What the first call finds.
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            PRINTED.set(PRINTED.get() + 1);
            print(panic);
        }));
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| -> u8 { panic!("words") }), Err("words".into()));
        assert_eq!(caught(|| -> u8 { panic!("{} words", black_box(2)) }), Err("2 words".into()));
        assert_eq!(caught(|| caught(|| -> u8 { panic!("inside") })), Ok(Err("inside".into())));
        assert_eq!(PRINTED.get(), 0, "of a call");
        assert!(catch_unwind(|| panic!("the caller's own")).is_err());
        assert_eq!(PRINTED.get(), 1, "of the caller");
    }
}
