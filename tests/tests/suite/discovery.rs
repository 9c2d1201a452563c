//! A discovery controller as the driver sees it. Tests in guests cover nvme-cli.

use ddlp_driver::DriverError;
use ddlp_driver::tcp::{TcpTarget, connect};
use ddlp_nvme::text::DISCOVERY_NQN;
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;

#[test]
fn a_discovery_controller_answers_at_both_ports_and_is_no_drive() {
    let (photos, state) = (Photos::new(8), tempfile::tempdir().expect("a folder"));
    let mut agent = Agent::start(&photos.pack(), state.path(), &["--discovery", "0"]);
    for _ in 0..2 {
        let discovery = agent.discovery().expect("it was asked for");
        assert_ne!(discovery, agent.address());
        for address in [agent.address(), discovery] {
            let target = TcpTarget::new(address, DISCOVERY_NQN).expect("an address");
            let error = connect(&target).map(drop).expect_err("it has no namespaces");
            assert!(
                matches!(&error, DriverError::Invalid(what) if what.contains("not an i/o controller")),
                "{address}: {error}"
            );
        }
        agent.kill();
        agent.restart();
    }
}
