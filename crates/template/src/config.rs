//! What an operator can set about templates.

use std::path::PathBuf;
use std::time::Duration;

use atoll_core::TenantId;

/// Bounds and places.
#[derive(Clone, Debug)]
pub struct TemplateConfig {
    /// Folder of uploaded files; made when it isn't there.
    pub uploads_dir: PathBuf,
    /// Tenant to whom builders and their snapshots belong, if not to whoever builds. Its snapshots
    /// must be usable by every tenant; only then can templates be public.
    pub builder_tenant: Option<TenantId>,
    /// Builds at work at the same time; more of them wait.
    pub builds_at_once: usize,
    /// Builds of one tenant that wait or work.
    pub builds_pending_max: usize,
    /// Templates of one tenant.
    pub templates_max: usize,
    /// Builds kept of one template.
    pub builds_kept_max: usize,
    /// Tags of one template.
    pub tags_max: usize,
    /// Remembered steps of one tenant.
    pub cache_max: usize,
    /// Bytes of one upload.
    pub upload_bytes_max: u64,
    /// Bytes of all uploads of one tenant; the oldest go first.
    pub uploads_bytes_max: u64,
    /// How long one step may take.
    pub step_time_max: Duration,
    /// How long a whole build may take.
    pub build_time_max: Duration,
    /// How long a template's ready command may take to succeed.
    pub ready_time_max: Duration,
    /// How long a creation waits for a built-in template that is still being made.
    pub built_in_patience: Duration,
    /// Work since the last snapshot that is worth a snapshot of its own.
    pub layer_worth: Duration,
}

impl TemplateConfig {
    /// Sensible bounds, with uploads kept in `uploads_dir`.
    pub fn new(uploads_dir: impl Into<PathBuf>) -> Self {
        Self {
            uploads_dir: uploads_dir.into(),
            builder_tenant: None,
            builds_at_once: 2,
            builds_pending_max: 20,
            templates_max: 200,
            builds_kept_max: 20,
            tags_max: 100,
            cache_max: 64,
            upload_bytes_max: 4 << 30,
            uploads_bytes_max: 16 << 30,
            step_time_max: Duration::from_secs(30 * 60),
            build_time_max: Duration::from_secs(60 * 60),
            ready_time_max: Duration::from_secs(10 * 60),
            built_in_patience: Duration::from_secs(45),
            layer_worth: Duration::from_millis(500),
        }
    }
}
