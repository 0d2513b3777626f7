/// The health and the metrics of a service.
pub trait Probe: Send + Sync {
    /// Checks liveness. An error names the part that is stuck, and means that the service should be restarted.
    ///
    /// # Errors
    /// The reason why the service should be restarted.
    fn live(&self) -> Result<(), String>;

    /// Checks that the service accepts work.
    ///
    /// # Errors
    /// The reason why the service should get no work now.
    fn ready(&self) -> Result<(), String>;

    /// The metrics, in the OpenMetrics text format.
    fn metrics(&self) -> String;
}
