//! The driver asks real agents where they are.

use ddlp_driver::tcp::{DiscoveredKind, TcpTarget, discover};
use ddlp_driver::{DriverError, HostIdentity, Target};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;

#[test]
fn a_host_discovers_an_agent_and_connects_to_what_it_found() {
    let (photos, state) = (Photos::new(8), tempfile::tempdir().expect("a folder"));
    let mut agent = Agent::start(&photos.pack(), state.path(), &["--discovery", "0"]);
    for _ in 0..2 {
        let further = agent.discovery().expect("it was asked for");
        assert_ne!(further, agent.address());
        for address in [agent.address(), further] {
            let found = discover(&TcpTarget::discovery(address).expect("an address")).expect("it answers");
            let [entry] = &found[..] else { panic!("{found:?}") };
            assert_eq!((entry.kind, entry.address.as_deref()), (DiscoveredKind::Nvm, Some(agent.address())));
            let url = format!("tcp://{}/{}", agent.address(), entry.nqn);
            assert_eq!(url, agent.url());
            Target::parse(&url).expect("an url").connect().expect("the agent takes its host");
        }
        // An agent that is started again is found as the same one.
        agent.kill();
        agent.restart();
    }
}

#[test]
fn what_is_no_discovery_controller_is_named() {
    let (photos, state) = (Photos::new(8), tempfile::tempdir().expect("a folder"));
    let agent = Agent::start(&photos.pack(), state.path(), &[]);
    assert_eq!(agent.discovery(), None);
    let Ok(Target::Tcp(drive)) = Target::parse(&agent.url()) else { panic!("an agent is reached by tcp") };
    let error = discover(&drive).expect_err("it has namespaces");
    assert!(matches!(&error, DriverError::Invalid(what) if what.contains("not a discovery controller")), "{error}");
    let target = TcpTarget::discovery(agent.address()).expect("an address");
    let error = ddlp_driver::tcp::connect(&target).map(drop).expect_err("it has no namespaces");
    assert!(matches!(&error, DriverError::Invalid(what) if what.contains("not an i/o controller")), "{error}");
}

#[test]
fn an_agent_tells_only_its_hosts_where_it_is() {
    let (photos, state) = (Photos::new(8), tempfile::tempdir().expect("a folder"));
    let friend = HostIdentity::from_uuid([7; 16]);
    let config = state.path().join("drive.toml");
    std::fs::write(&config, format!("allowed-hosts = [\"{}\"]", friend.nqn)).expect("a file");
    let agent = Agent::start(&photos.pack(), state.path(), &["--config", config.to_str().expect("text")]);
    let mut target = TcpTarget::discovery(agent.address()).expect("an address");
    let error = discover(&target).expect_err("a stranger");
    assert!(matches!(&error, DriverError::Status { status, .. } if status.contains("invalid host")), "{error}");
    target.host = friend;
    assert_eq!(discover(&target).expect("a friend").len(), 1);
}
