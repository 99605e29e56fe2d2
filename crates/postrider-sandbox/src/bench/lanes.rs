//! What a delivery costs over one lane, a thousand and a hundred thousand: tenants × classes against one receiver, so
//! that only the number of lanes differs.

use anyhow::Result;

use super::{Benchmark, load, process};

/// Tenants and classes.
const SPREADS: [(usize, usize); 3] = [(1, 1), (10, 100), (250, 400)];

impl Benchmark<'_> {
    pub(super) async fn lanes(&mut self) -> Result<()> {
        let mut over_one = None;
        for (tenants, classes) in SPREADS {
            let lanes = tenants * classes;
            let cost = self.cost_over(tenants, classes).await?;
            let over_one = *over_one.get_or_insert(cost);
            let name = format!("lanes.{lanes}");
            self.report.add(&name, cost, "µs of server CPU per delivery over so many lanes");
            if lanes > 1 {
                let what = "times what it costs over one lane (aim: at most 1.5)";
                self.report.add(&format!("{name}.ratio"), cost / over_one, what);
            }
        }
        Ok(())
    }

    async fn cost_over(&mut self, tenants: usize, classes: usize) -> Result<f64> {
        let (n, lanes) = (self.args.messages, tenants * classes);
        let dir = self.dir.join(format!("lanes-{lanes}"));
        self.say(&format!("lanes: {n} webhooks over {lanes} lanes queued, then delivered"));
        // Classes that differ in nothing but their names.
        let config: String = (0..classes).map(|class| format!("[classes.c{class}]\n")).collect();
        process::configure(&dir, &config)?;
        let (server, address) = process::server(&dir, "api", &self.sandbox).await?;
        load::spread(address, &self.webhook(), tenants, classes, n).await?;
        server.stop()?;
        Ok(super::per_message_us(self.drained(&dir, n).await?.cpu, n))
    }
}
