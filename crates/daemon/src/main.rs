//! `detshared`: the daemon's command line.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use detshare_api::places;
use detshare_api::usage::in_one_line;
use detshare_daemon::log::{self, LogFormat};
use detshare_daemon::ready::Waiting;
use detshare_daemon::{Settings, exit, run};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// For who reads the manual before anything else.
const ABOUT: &str = "\
Knows which programs share the GPU and what each may have, and sees it when one dies. Programs that `detshare run` started find it by \
its folder and go on without it when it ends, at whatever moment. `detshare run` and `detshare up` start one where none runs; a service \
manager may do so instead. SIGHUP has the configuration read again, SIGTERM and SIGINT end it in order.";

#[derive(Debug, Parser)]
#[command(name = "detshared", version, about = "Shares a GPU between unmodified CUDA programs", long_about = ABOUT, after_help = exit::HELP)]
struct Arguments {
    /// The runtime folder [default: $DETSHARE_DIR, $XDG_RUNTIME_DIR/detshare or /tmp/detshare-UID]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The configuration file [default: $DETSHARE_CONFIG or ~/.config/detshare/detshare.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the log on standard error looks
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// End after this long without tenants and questions, such as 10min [default: never]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    idle_exit: Option<Duration>,
    /// How often what was learnt is written to disk
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "1min")]
    save_every: Duration,
    /// Print the manual page and end
    #[arg(long, hide = true)]
    manual: bool,
    /// Print the completions of a shell and end
    #[arg(long, hide = true, value_name = "SHELL")]
    completions: Option<Shell>,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return say(&error),
    };
    if arguments.manual {
        // As a command that is given: whoever closes the other end has read enough.
        let _ = clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout());
        return ExitCode::SUCCESS;
    }
    if let Some(shell) = arguments.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut completed(), "detshared", &mut script);
        let _ = std::io::stdout().write_all(&script);
        return ExitCode::SUCCESS;
    }
    // SAFETY: nothing has opened a file yet, so the descriptor that is named is nobody's here.
    let waiting = unsafe { Waiting::from_environment() };
    let settings = Settings {
        folder: places::runtime_folder(arguments.folder.as_deref()),
        config: places::config_file(arguments.config.as_deref()),
        idle_exit: arguments.idle_exit,
        save_every: arguments.save_every,
        log: log::start(arguments.log_format),
        waiting,
    };
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "detshared: {error}");
            error.exit_code().into()
        }
    }
}

/// Prints what was asked for in place of a daemon, or in one line what is wrong with the command line.
fn say(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell if this cannot be printed.
    let _ = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.print(),
        _ => {
            let line = in_one_line(&error.render().to_string(), "detshared --help");
            writeln!(std::io::stderr(), "detshared: {line}")
        }
    };
    if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS }
}

/// What a shell offers: without what is for those who package us.
fn completed() -> clap::Command {
    let command = Arguments::command();
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    clap::Command::new("detshared").version(env!("CARGO_PKG_VERSION")).args(shown)
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn flags_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }
}
