/// The health and the metrics of a service.
pub trait Probe: Send + Sync {
    /// Whether work goes on. An error names the part that is stuck, and means that the service should be restarted.
    ///
    /// # Errors
    /// Why the service should be restarted.
    fn live(&self) -> Result<(), String>;

    /// Whether the service takes work.
    ///
    /// # Errors
    /// Why it should get no work now.
    fn ready(&self) -> Result<(), String>;

    /// The metrics, in the OpenMetrics text format.
    fn metrics(&self) -> String;
}
