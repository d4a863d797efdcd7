//! Measures this machine and prints what it found, one constant a line:
//! `cargo run --release -p homenode-live --example measure [tiny]`.

use homenode_core::costs::{Constant, Unit};
use homenode_measure::constants::{Options, measure};

fn line(name: &str, unit: Unit, c: &Constant) {
    let scale = unit.scale() as f64;
    let spread = c.spread.map_or_else(|| "-".to_owned(), |s| format!("{:.2}", s as f64 / scale));
    let value = c.value as f64 / scale;
    println!(
        "{name:20} {value:>10.2} ±{spread:<8} {:6} {:8} {}",
        unit.name(),
        c.origin.name(),
        c.method
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tiny = std::env::args().any(|a| a == "tiny");
    let options = if tiny { Options::tiny() } else { Options::default() };
    let began = std::time::Instant::now();
    let machine =
        measure(&options, &mut |p| eprint!("\r{:3} % {:40}", p.done_permille / 10, p.what))?;
    eprintln!();
    println!("{}\n{}\n{:.1} s", machine.name, machine.about, began.elapsed().as_secs_f64());
    for n in &machine.nodes {
        println!("node {} {:?} {:?}", n.id, n.medium, n.zones);
    }
    println!("{:?}\n{:?}", machine.cpus, machine.distances);
    for c in &machine.caches {
        println!(
            "L{} {} bytes, {} ways, lines of {}, shared by {}",
            c.level, c.size.0, c.ways, c.line, c.shared_by
        );
        line("  latency", Unit::Nanoseconds, &c.latency);
    }
    for l in &machine.links {
        println!("link {} to {}", l.from, l.to);
        line("  read_latency", Unit::Nanoseconds, &l.read_latency);
        line("  write_latency", Unit::Nanoseconds, &l.write_latency);
        line("  read_bandwidth", Unit::MBps, &l.read_bandwidth);
        line("  write_bandwidth", Unit::MBps, &l.write_bandwidth);
    }
    for (key, c) in &machine.costs.0 {
        line(key.name(), key.unit(), c);
    }
    Ok(())
}
