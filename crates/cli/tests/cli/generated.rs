//! What is generated from the command line's own definition.

use crate::stage::{Stage, outcome};

const SUBCOMMANDS: [&str; 15] = [
    "run",
    "ps",
    "top",
    "set",
    "pause",
    "resume",
    "policy",
    "up",
    "down",
    "status",
    "doctor",
    "verify",
    "bench",
    "completions",
    "man",
];

#[test]
fn help_names_every_subcommand_and_exit_code() {
    let help = outcome(Stage::new().detshare().arg("help"));
    assert_eq!(help.code, Some(0));
    for name in SUBCOMMANDS {
        assert!(help.stdout.lines().any(|line| line.trim_start().starts_with(&format!("{name} "))), "{name}");
    }
    for code in [64, 66, 69, 71, 74, 75, 76, 77, 78] {
        assert!(help.stdout.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}");
    }
}

#[test]
fn completions_know_every_subcommand() {
    for shell in ["bash", "zsh", "fish"] {
        let script = outcome(Stage::new().detshare().args(["completions", shell]));
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        for name in SUBCOMMANDS.iter().chain(&["--class", "best-effort"]) {
            // In fish, options stand without their dashes.
            assert!(script.stdout.contains(name.trim_start_matches("--")), "{shell} has no {name}");
        }
    }
    assert_eq!(outcome(Stage::new().detshare().args(["completions", "cmd.exe"])).code, Some(64));
}

#[test]
fn the_shell_takes_the_completions() {
    let stage = Stage::new();
    let script = outcome(stage.detshare().args(["completions", "bash"])).stdout;
    std::fs::write(stage.path("completions"), script).unwrap();
    let complete = "source ./completions && COMP_WORDS=(detshare run --cl) COMP_CWORD=2 && \
                    _detshare detshare --cl run && echo ${COMPREPLY[@]}";
    let mut bash = std::process::Command::new("bash");
    stage.prepare(&mut bash);
    let completed = outcome(bash.args(["-c", complete]));
    assert_eq!(completed.stdout, "--class\n", "{}", completed.stderr);
}

#[test]
fn one_manual_page_is_printed() {
    let page = outcome(Stage::new().detshare().arg("man"));
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    assert!(page.stdout.contains(".TH detshare 1"), "{}", page.stdout);
}

#[test]
fn all_manual_pages_are_written() {
    let stage = Stage::new();
    let written = outcome(stage.detshare().args(["man", "share/man1"]));
    assert_eq!((written.code, written.stdout.as_str()), (Some(0), ""), "{}", written.stderr);
    let page = |name: &str| std::fs::read_to_string(stage.path("share/man1").join(name));
    assert!(page("detshare.1").unwrap().contains("detshare"));
    for name in SUBCOMMANDS {
        let page = page(&format!("detshare-{name}.1")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH"), "{name}");
    }
    std::fs::write(stage.path("file"), "").unwrap();
    assert_eq!(outcome(stage.detshare().args(["man", "file"])).code, Some(74));
}
