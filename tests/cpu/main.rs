//! The CPU backend against an independent float64 implementation, and against what must hold whatever the numbers are.

mod accuracy;
mod extremes;
mod inputs;
mod metamorphic;
mod oracle;
mod stages;
mod threads;
