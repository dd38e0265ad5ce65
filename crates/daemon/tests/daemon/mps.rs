//! MPS, looked after. NVIDIA's control program is played by a script; what is tested is what the daemon does with it.

use crate::house::House;
use crate::tenant::{TestTenant, hello};
use crate::until;
use detshare_api::{Isolation, Mps, MpsState};
use detshare_board::Owner;
use detshare_board::join::Hello;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// In the folder of its pipes: `clients` has its clients' pids, `deaf` means that it does not obey.
const CONTROL: &str = r#"#!/bin/sh
PATH=/usr/bin:/bin
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
pid_file=nvidia-cuda-mps-control.pid
if [ "$1" = "-f" ]; then
    rm -f quit
    echo $$ > $pid_file
    until [ -e quit ]; do sleep 0.02; done
    rm -f quit $pid_file
    exit 0
fi
read -r question server
if ! { read -r pid < $pid_file && grep -q '^State:[[:space:]]*[RSD]' "/proc/$pid/status"; } 2>/dev/null; then
    echo "Cannot find MPS control daemon process" >&2
    exit 1
fi
case "$question" in
    get_server_list) [ ! -e clients ] || echo 4242 ;;
    get_client_list) [ "$server" = 4242 ] && cat clients ;;
    ps) echo "PID       ID    SERVER    DEVICE    NAMESPACE    COMMAND" ;;
    quit) [ -e deaf ] || : > quit ;;
esac
"#;

fn house() -> House {
    let mut house = House::empty();
    house.write_program("nvidia-cuda-mps-control", CONTROL);
    house.write_config("isolation = \"mps\"\nladder = [8, 12, 16, 64, 200]\n");
    house.start();
    house
}

fn mps(house: &House) -> Mps {
    house.client().status().expect("answered").mps.expect("it is used")
}

/// Whether the only tenant is a client, as the metrics say it.
fn metric(house: &House) -> Option<String> {
    let metrics = house.client().metrics().expect("answered");
    let line = metrics.lines().find(|line| line.starts_with("detshare_tenant_mps_client{"))?;
    line.rsplit(' ').next().map(|value| value.trim_end_matches(".0").to_string())
}

fn control(house: &House) -> Owner {
    Owner::of_process(mps(house).pid.expect("it runs")).expect("it lives")
}

fn kill(owner: &Owner) {
    let pid = Pid::from_raw(owner.pid().cast_signed()).expect("a pid");
    kill_process(pid, Signal::KILL).expect("it lives");
}

fn on_real_gpu(name: &str) -> Hello {
    Hello { gpu: "NVIDIA H200".to_string(), ..hello(name) }
}

#[test]
fn it_runs_when_the_daemon_is_ready_and_ends_with_it() {
    let mut house = house();
    let status = house.client().status().expect("answered");
    let mps = status.mps.expect("it is used");
    assert_eq!((status.isolation, mps.state, mps.restarts), (Isolation::Mps, MpsState::Running, 0));
    assert_eq!(mps.pipe_directory, house.run_folder().join("mps/pipe"));
    let variable = |name: &str| status.environment.get(name).map(std::path::PathBuf::from);
    assert_eq!(variable("CUDA_MPS_PIPE_DIRECTORY"), Some(mps.pipe_directory));
    assert_eq!(variable("CUDA_MPS_LOG_DIRECTORY"), Some(house.run_folder().join("mps/log")));
    let tenant = TestTenant::join(&house.run_folder(), &on_real_gpu("train")).expect("taken in");
    assert_eq!(tenant.entry().expect("its own").ladder.widths(), [8, 16, 64]);
    let control = control(&house);
    house.stop();
    assert!(control.is_dead());
}

#[test]
fn its_clients_are_known() {
    let house = house();
    fs::write(mps(&house).pipe_directory.join("clients"), format!("1\n{}\n", std::process::id())).expect("written");
    let tenant = TestTenant::join(&house.run_folder(), &on_real_gpu("client")).expect("taken in");
    house.until_tenant("client", "it is found", |tenant| tenant.mps_client == Some(true));
    assert_eq!(metric(&house), Some("1".to_string()));
    drop(tenant);
    house.until_count(0);
    fs::write(mps(&house).pipe_directory.join("clients"), "1\n").expect("written");
    let tenant = TestTenant::join(&house.run_folder(), &on_real_gpu("stray")).expect("taken in");
    house.until_tenant("stray", "it is not found", |tenant| tenant.mps_client == Some(false));
    assert!(house.log().contains("start it by `detshare run`"), "{}", house.log());
    assert_eq!(metric(&house), Some("0".to_string()));
    drop(tenant);
    house.until_count(0);
    let _soft = TestTenant::join(&house.run_folder(), &hello("soft")).expect("taken in");
    assert_eq!(house.client().tenant("soft").expect("known").mps_client, None, "it has nothing to do with MPS");
    assert_eq!(metric(&house), None);
}

#[test]
fn one_that_ends_is_started_again_when_no_tenant_is_left() {
    let house = house();
    let first = control(&house);
    kill(&first);
    until("another one", || Some(mps(&house)).filter(|mps| mps.restarts == 1 && mps.state == MpsState::Running));
    let second = control(&house);
    assert_ne!((first.pid(), first.start_time()), (second.pid(), second.start_time()));

    let tenant = TestTenant::join(&house.run_folder(), &on_real_gpu("train")).expect("taken in");
    kill(&second);
    until("it is down", || Some(mps(&house)).filter(|mps| mps.state == MpsState::Down));
    let status = house.client().status().expect("answered");
    assert_eq!((status.environment.len(), status.mps.expect("used").pid), (0, None), "nobody is to use it");
    assert_eq!(mps(&house).restarts, 1);
    drop(tenant);
    until("a third one", || Some(mps(&house)).filter(|mps| mps.restarts == 2 && mps.state == MpsState::Running));
}

#[test]
fn it_outlives_a_daemon_that_was_killed_and_is_taken_over() {
    let mut house = house();
    let control = control(&house);
    house.kill();
    assert!(!control.is_dead(), "tenants would lose the GPU");
    house.start();
    let taken_over = mps(&house);
    assert_eq!((taken_over.pid, taken_over.restarts), (Some(control.pid()), 0));
    house.stop();
    until("it has ended", || control.is_dead().then_some(()));
}

#[test]
fn one_that_does_not_quit_is_ended_unless_tenants_use_it() {
    let mut house = house();
    let first = control(&house);
    fs::write(mps(&house).pipe_directory.join("deaf"), "").expect("written");
    house.stop();
    assert!(first.is_dead());

    house.start();
    let second = control(&house);
    let tenant = TestTenant::join(&house.run_folder(), &on_real_gpu("train")).expect("taken in");
    house.stop();
    assert!(!second.is_dead(), "it would take the tenant with it");
    drop(tenant);
    kill(&second);
}

#[test]
fn a_daemon_runs_without_if_it_cannot_be_started() {
    let mut house = House::empty();
    house.write_program("nvidia-cuda-mps-control", "#!/bin/sh\necho 'no GPU here' >&2\nexit 1\n");
    house.write_config("isolation = \"mps\"\n");
    house.start();
    let mps = mps(&house);
    assert_ne!(mps.state, MpsState::Running);
    TestTenant::join(&house.run_folder(), &on_real_gpu("train")).expect("taken in");
    house.stop();

    let house = House::empty();
    house.write_config("isolation = \"mps\"\n");
    let output = house.fail();
    assert_eq!(output.status.code(), Some(69));
}
