//! What is generated from the command line's own definition.

use crate::stage::{Stage, outcome};

/// Every subcommand, as the command itself lists them.
fn subcommands() -> Vec<String> {
    let help = outcome(Stage::new().detshare().arg("help")).stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What does not stand at the beginning of its line goes on with what was said before.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    let names: Vec<String> = names.filter(|name| *name != "help").map(String::from).collect();
    assert!(
        ["run", "explain", "record", "sim", "man"].iter().all(|name| names.iter().any(|one| one == name)),
        "{help}"
    );
    names
}

#[test]
fn every_subcommand_has_help_and_every_exit_code_is_named() {
    let help = outcome(Stage::new().detshare().arg("help"));
    assert_eq!(help.code, Some(0));
    for name in subcommands() {
        let own = outcome(Stage::new().detshare().args([name.as_str(), "--help"]));
        assert_eq!((own.code, own.stderr.as_str()), (Some(0), ""), "{name}");
        assert!(own.stdout.contains(&format!("Usage: detshare {name}")), "{name}: {}", own.stdout);
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
        for name in subcommands().iter().map(String::as_str).chain(["--class", "best-effort"]) {
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
    for name in subcommands() {
        let page = page(&format!("detshare-{name}.1")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH"), "{name}");
    }
    std::fs::write(stage.path("file"), "").unwrap();
    assert_eq!(outcome(stage.detshare().args(["man", "file"])).code, Some(74));
}
