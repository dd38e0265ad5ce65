//! Every function of the table, by every way.

use crate::stage::{built, finish, shim, stub_driver};
use std::process::Command;

fn surface(check: &str) -> String {
    let mut command = Command::new(built("surface"));
    command.env_clear().arg("--shim").arg(shim()).arg("--driver").arg(stub_driver()).arg(check);
    let output = finish(&mut command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_function_is_reached_with_all_arguments_by_every_way() {
    let said = surface("arguments");
    assert!(said.contains("682 functions as a process's first call, 682 by exported name"), "{said}");
}

#[test]
fn queries_are_answered_as_the_driver_does() {
    surface("answers");
}

#[test]
fn exports_are_exactly_the_table() {
    let said = surface("exports");
    assert!(said.contains("682 functions exported") && said.contains("lacking in the driver: []"), "{said}");
}
