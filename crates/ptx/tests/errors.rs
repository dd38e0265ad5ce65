//! What a broken source is told, word for word.

use detshare_ptx::parse;

/// Three lines, so that what follows starts on line 4.
const HEAD: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";

fn message(source: &str) -> String {
    parse(source).expect_err(source).to_string()
}

#[test]
fn modules_say_what_is_missing() {
    let table = [
        ("", "1:1: expected '.version', found the end of the file"),
        ("\u{7f}ELF", "1:1: unknown character '\u{7f}'"),
        (".version 8", "1:10: expected a version such as 8.4, found '8'"),
        (".version 8.4\n.address_size 64", "2:1: expected '.target', found '.address_size'"),
        (".version 8.4 .target sm_90,", "1:28: expected a name, found the end of the file"),
        (".version 8.4 .target sm_90 .address_size x", "1:42: expected an address size, found 'x'"),
    ];
    for (source, expected) in table {
        assert_eq!(message(source), expected);
    }
}

#[test]
fn items_say_what_is_missing() {
    let table = [
        ("hello", "4:1: expected a directive, found 'hello'"),
        (".visible .foo", "4:10: expected '.entry', '.func' or a state space, found '.foo'"),
        (".global .align 4 x;", "4:18: expected a type, found 'x'"),
        (".global .u32 .f32 x;", "4:14: expected a name, found '.f32'"),
        (".global .u32 x\n.global .u32 y;", "5:1: expected ',' or ';', found '.global'"),
        (".global .u32 x[-1];", "4:16: -1 is out of range for a dimension"),
        (".global .u32 x[4/(2-2)];", "4:17: division by zero"),
        (".global .u32 x = {1, 2;", "4:23: expected ',' or '}', found ';'"),
        (".global .u32 x = 08;", "4:18: '08' is not a number"),
        (".global .u64 x = 18446744073709551616;", "4:18: 18446744073709551616 is out of range for a 64-bit integer"),
        (".global .f32 x = 0f3F80;", "4:18: '0f3F80' is not a number"),
        (".global .u32 x = ~1.5;", "4:18: operator '~' takes integers only"),
        (".entry k(.param .u64)", "4:21: expected a name, found ')'"),
        (".entry k(.param .u64 x .param .u64 y)", "4:24: expected ',' or ')', found '.param'"),
        (".entry k() .maxntid 4294967296 {}", "4:21: 4294967296 is out of range for a directive's argument"),
        (".entry k() ret;", "4:12: expected '{' or ';', found 'ret'"),
        (".section .debug_info { .b8 1", "4:29: expected '}', found the end of the file"),
        (".file 1 name", "4:9: expected a file's name in quotes, found 'name'"),
        (".file 1 \"name", "4:9: the string has no end"),
        ("/* .entry k()", "4:1: the comment has no end"),
    ];
    for (item, expected) in table {
        assert_eq!(message(&format!("{HEAD}{item}")), expected);
    }
}

#[test]
fn statements_say_what_is_missing() {
    let table = [
        ("\n  add.s32 %r1, %r2 }", "5:20: expected ';', found '}'"),
        ("\n  add.s32 %r1, %r2\n  ret; }", "6:3: expected ';', found 'ret'"),
        ("\n  tex.2d.v4.f32.f32 {a, b, c, d}, [t, {x, y}]\n  @p ret; }", "6:3: expected ';', found '@'"),
        ("\n  ld.u32 %r1, [%r2;\n  ret; }", "5:19: expected a closing bracket, found ';'"),
        ("\n  ret;", "5:7: expected '}', found the end of the file"),
        ("\n  ; }", "5:3: expected a statement, found ';'"),
        ("\n  @1 ret; }", "5:4: expected a predicate register, found '1'"),
        ("\n  @%p; }", "5:6: expected an opcode, found ';'"),
        ("\n  .reg .b32 %r<x>; }", "5:16: expected a number of registers, found 'x'"),
        ("\n  .loc 1 2 ret; }", "5:12: expected a column, found 'ret'"),
        ("\n  t: .branchtargets a b; }", "5:23: expected ';', found 'b'"),
        ("\n  .extern .loc 1 2 3 }", "5:11: expected a state space, found '.loc'"),
        (&format!("\n  {} }}", "{".repeat(65)), "5:67: nested more than 64 deep"),
        ("\n  é }", "5:3: unknown character 'é'"),
    ];
    for (statements, expected) in table {
        assert_eq!(message(&format!("{HEAD}.entry k() {{{statements}")), expected);
    }
}

#[test]
fn long_tokens_are_cut() {
    let name = "x".repeat(100);
    let expected = format!("4:1: expected a directive, found '{}…'", "x".repeat(40));
    assert_eq!(message(&format!("{HEAD}{name}")), expected);
}
