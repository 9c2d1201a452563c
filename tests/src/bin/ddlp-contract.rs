//! `ddlp-contract ADDRESS PACK`: checks the driver's contract on a drive's address, for example in a guest.

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, pack] = &args[..] else { panic!("ddlp-contract ADDRESS PACK") };
    let target = ddlp_driver::Target::parse(address).expect("an address");
    ddlp_tests::contract::check(&target, Path::new(pack));
    println!("{address}: fulfils the contract");
}
