//! The user-space driver keeps its contract against a real agent. Tests in guests hold the kernel's driver to the same
//! contract.

use ddlp_driver::Target;
use ddlp_tests::agent::Agent;
use ddlp_tests::contract::check;
use ddlp_tests::photos::Photos;

fn targets(url: &str) -> impl Iterator<Item = Target> + '_ {
    [(false, false), (true, true)].into_iter().map(move |(header, data)| {
        let Ok(Target::Tcp(mut target)) = Target::parse(url) else { panic!("an agent is reached by tcp") };
        (target.header_digest, target.data_digest) = (header, data);
        Target::Tcp(target)
    })
}

#[test]
fn the_user_space_driver_keeps_its_contract() {
    let (photos, state) = (Photos::new(40), tempfile::tempdir().expect("a folder"));
    let agent = Agent::start(&photos.pack(), state.path(), &["--threads", "1"]);
    for target in targets(&agent.url()) {
        check(&target, &photos.pack());
    }
}
