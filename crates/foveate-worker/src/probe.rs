/// What a service tells those who watch over it.
pub trait Probe: Send + Sync {
    /// Whether work goes on. An error, with the stage that is stuck and since when, means: restart it.
    ///
    /// # Errors
    /// Why it should be restarted.
    fn live(&self) -> Result<(), String>;

    /// Whether it takes work.
    ///
    /// # Errors
    /// Why it should not be given any now.
    fn ready(&self) -> Result<(), String>;

    /// The metrics, in the OpenMetrics text format.
    fn metrics(&self) -> String;
}
