//! `detshared`: the daemon's command line.

use clap::Parser;
use detshare_api::places;
use detshare_daemon::log::{self, LogFormat};
use detshare_daemon::ready::Waiting;
use detshare_daemon::{Settings, exit, run};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(name = "detshared", version, about = "Shares a GPU between unmodified CUDA programs")]
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
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
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

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn flags_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }
}
