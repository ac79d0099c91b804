//! Programs on the `PATH`.

use std::path::PathBuf;

/// The first of these programs that is found.
pub(crate) fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let directories: Vec<_> = std::env::split_paths(&path).collect();
    let mut files = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    files.find(|file| file.is_file())
}
