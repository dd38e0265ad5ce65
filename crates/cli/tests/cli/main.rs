//! `detshare` from outside. The programs that it runs are shell scripts that write, in place of the shim, what the shim
//! would write, and where many tenants are wanted, a thread of the test answers in place of the daemon; so nothing here
//! needs CUDA. A test of `bench`, and those of sharing, records and LLM servers, run real programs on the software GPU.

mod bench;
mod bench_llm;
mod bench_stage;
mod block_level;
mod containers;
mod control;
mod daemon;
mod doctor;
mod explain;
mod fake;
mod generated;
mod llm;
mod llm_script;
mod objectives;
mod programs;
mod record;
mod run;
mod sharing;
mod stage;
mod terminal;
mod top;
mod usage;
mod verify;
mod verify_endings;
