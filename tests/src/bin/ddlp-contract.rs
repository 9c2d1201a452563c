//! `ddlp-contract ADDRESS PACK`: holds a way to a drive to the driver's contract, in a guest for example.

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, pack] = &args[..] else { panic!("ddlp-contract ADDRESS PACK") };
    let target = ddlp_driver::Target::parse(address).expect("an address");
    ddlp_tests::contract::check(&target, Path::new(pack));
    println!("{address}: as the contract says");
}
