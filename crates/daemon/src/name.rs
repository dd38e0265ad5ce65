//! What tenants are called.

use detshare_board::join::is_name;

/// The board carries no longer ones.
const LONGEST: usize = 63;
/// What a tenant is called of which nothing is known.
const NAMELESS: &str = "tenant";

/// The name of a tenant that did not say one, from its arguments: the program's file, or what Python runs.
pub(crate) fn from_arguments(arguments: &[String]) -> String {
    let program = arguments.first().map_or("", |path| file_name(path));
    let name = if program.starts_with("python") { python_name(&arguments[1..]).unwrap_or(program) } else { program };
    let letters = name.chars().map(|letter| if is_usual(letter) { letter } else { '-' });
    // One that begins with '-' would be taken for an option where it is typed.
    let name: String = letters.skip_while(|letter| *letter == '-').take(LONGEST).collect();
    if name.bytes().any(|byte| byte.is_ascii_alphanumeric()) { name } else { NAMELESS.to_string() }
}

fn is_usual(letter: char) -> bool {
    is_name(letter.encode_utf8(&mut [0; char::MAX.len_utf8()]))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default()
}

/// The script or the module; nothing for a program in the arguments or on the standard input.
fn python_name(arguments: &[String]) -> Option<&str> {
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        match argument {
            "-m" => return arguments.next(),
            "-c" | "-" => return None,
            // Their value is the next argument.
            "-W" | "-X" | "--check-hash-based-pycs" => _ = arguments.next(),
            option if option.starts_with('-') => {}
            script => return Some(file_name(script)),
        }
    }
    None
}

/// The name, or the name with the first number from 2 on that nobody has.
pub(crate) fn unique(wanted: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(wanted) {
        return wanted.to_string();
    }
    let mut number = 2_u64;
    loop {
        let suffix = format!("-{number}");
        // Only ASCII is in names, so it can be cut anywhere.
        let name = format!("{}{suffix}", &wanted[..wanted.len().min(LONGEST - suffix.len())]);
        if !is_taken(&name) {
            return name;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &[&str]) -> String {
        from_arguments(&line.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn programs_are_called_by_their_file() {
        assert_eq!(name(&["/usr/bin/blender", "-b"]), "blender");
        assert_eq!(name(&["./my program"]), "my-program");
        assert_eq!(name(&["(sd-pam)"]), "sd-pam-");
        for nothing in [&[][..], &[""], &["/"], &["§"]] {
            assert_eq!(name(nothing), "tenant");
        }
        assert_eq!(name(&["x".repeat(200).as_str()]).len(), LONGEST);
    }

    #[test]
    fn python_is_called_by_what_it_runs() {
        assert_eq!(name(&["/usr/bin/python3.12", "-u", "-X", "dev", "/home/me/serve.py", "--port"]), "serve.py");
        assert_eq!(name(&["python", "-m", "vllm.entrypoints.api"]), "vllm.entrypoints.api");
        assert_eq!(name(&["python3", "-c", "import torch"]), "python3");
        assert_eq!(name(&["python3"]), "python3");
    }

    #[test]
    fn the_second_of_a_name_has_a_number() {
        let taken = ["train", "train-2"];
        assert_eq!(unique("train", |name| taken.contains(&name)), "train-3");
        assert_eq!(unique("serve", |name| taken.contains(&name)), "serve");
        let long = "x".repeat(LONGEST);
        let second = unique(&long, |name| name == long);
        assert!(is_name(&second) && second.ends_with("x-2"), "{second}");
    }
}
