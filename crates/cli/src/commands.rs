//! The subcommands: one file and one row in [`Command`] for each.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod explain;
pub(crate) mod man;
pub(crate) mod pause;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod record;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod up;
pub(crate) mod verify;

use crate::table::OutputError;
use clap::Subcommand;

/// What `detshare` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Arguments),
    Ps(ps::Arguments),
    Top(top::Arguments),
    Set(set::Arguments),
    Pause(pause::Arguments),
    Resume(resume::Arguments),
    Policy(policy::Arguments),
    Explain(explain::Arguments),
    Record(record::Arguments),
    Sim(sim::Arguments),
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
    Doctor(doctor::Arguments),
    Verify(verify::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

/// Why a subcommand has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Run(#[from] run::RunError),
    #[error(transparent)]
    Ps(#[from] ps::PsError),
    #[error(transparent)]
    Top(#[from] top::TopError),
    #[error(transparent)]
    Set(#[from] set::SetError),
    #[error(transparent)]
    Pause(#[from] pause::PauseError),
    #[error(transparent)]
    Policy(#[from] policy::PolicyError),
    #[error(transparent)]
    Explain(#[from] explain::ExplainError),
    #[error(transparent)]
    Record(#[from] record::RecordedError),
    #[error(transparent)]
    Sim(#[from] sim::SimError),
    #[error(transparent)]
    Up(#[from] up::UpError),
    #[error(transparent)]
    Down(#[from] down::DownError),
    #[error(transparent)]
    Status(#[from] status::StatusError),
    #[error(transparent)]
    Verify(#[from] verify::VerifyError),
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    #[error(transparent)]
    Man(#[from] man::ManError),
    /// Of those that can do nothing else wrong.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl Command {
    /// Does it; returns the exit code. `definition` gives the whole command line, for those that describe it.
    pub(crate) fn run(self, definition: fn() -> clap::Command) -> Result<u8, CommandError> {
        Ok(match self {
            Self::Run(arguments) => run::run(arguments)?,
            Self::Ps(arguments) => ps::run(arguments)?,
            Self::Top(arguments) => top::run(arguments)?,
            Self::Set(arguments) => set::run(arguments)?,
            Self::Pause(arguments) => pause::run(arguments)?,
            Self::Resume(arguments) => resume::run(arguments)?,
            Self::Policy(arguments) => policy::run(arguments)?,
            Self::Explain(arguments) => explain::run(arguments)?,
            Self::Record(arguments) => record::run(arguments)?,
            Self::Sim(arguments) => sim::run(arguments)?,
            Self::Up(arguments) => up::run(arguments)?,
            Self::Down(arguments) => down::run(arguments)?,
            Self::Status(arguments) => status::run(arguments)?,
            Self::Doctor(arguments) => doctor::run(arguments)?,
            Self::Verify(arguments) => verify::run(arguments)?,
            Self::Bench(arguments) => bench::run(arguments)?,
            Self::Completions(arguments) => completions::run(arguments, definition())?,
            Self::Man(arguments) => man::run(arguments, definition())?,
        })
    }
}

impl CommandError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            Self::Ps(error) => error.exit_code(),
            Self::Top(error) => error.exit_code(),
            Self::Set(error) => error.exit_code(),
            Self::Pause(error) => error.exit_code(),
            Self::Policy(error) => error.exit_code(),
            Self::Explain(error) => error.exit_code(),
            Self::Record(error) => error.exit_code(),
            Self::Sim(error) => error.exit_code(),
            Self::Up(error) => error.exit_code(),
            Self::Down(error) => error.exit_code(),
            Self::Status(error) => error.exit_code(),
            Self::Verify(error) => error.exit_code(),
            Self::Bench(error) => error.exit_code(),
            Self::Man(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}
