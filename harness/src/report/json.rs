//! The report as a file, written so that a reader never sees half of it, and nothing but a file is ever replaced.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::plain::plain;
use crate::reason::{Failure, Reason};
use crate::rng;

/// Writes `value` to `path` by way of a file beside it.
pub fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    write_text(path, &plain(&text(value)?))
}

/// What is in such a file.
pub fn text(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|e| Failure::new(Reason::Usage, format!("no JSON can be made: {e}")))
}

/// Fails where a file could not be written, and leaves everything as it was.
pub fn try_to_write(path: &Path) -> Result<(), Failure> {
    let tried = match replaceable(path) {
        Ok(Some(file)) if file.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(Some(file)) => begin(&file).and_then(|(part, _)| fs::remove_file(part)),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    tried.map_err(|e| failed(path, e))
}

/// Makes the folder that the file is to be in.
pub fn make_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder(path)).map_err(|e| failed(path, e))
}

/// Writes text in the same way; straight into what cannot be replaced.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    let written = match replaceable(path) {
        Ok(Some(file)) => replace(&file, text),
        Ok(None) => File::options().append(true).open(path).and_then(|mut stream| stream.write_all(text.as_bytes())),
        Err(error) => Err(error),
    };
    written.map_err(|e| failed(path, e))
}

/// Whether what is written there stays, so that nothing can be written anew.
pub fn is_stream(path: &Path) -> bool {
    matches!(replaceable(path), Ok(None))
}

/// The file that would be replaced, by the one name that it has whichever way leads there. None for what is written to as it is.
pub fn place(path: &Path) -> Option<PathBuf> {
    let file = replaceable(path).ok()??;
    Some(fs::canonicalize(folder(&file)).ok()?.join(file.file_name()?))
}

/// The file behind all links that another may take the place of, whether or not it is there yet. A device or a pipe is none.
fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    let stays = match fs::metadata(path) {
        Ok(found) => !found.is_file() && !found.is_dir(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    // What has a name in /proc somebody holds open, and would not see what takes its place.
    if stays || fs::canonicalize(folder(path))?.starts_with("/proc") {
        return Ok(None);
    }
    match fs::read_link(path) {
        Ok(next) => replaceable(&folder(path).join(next)),
        Err(_) => Ok(Some(path.to_path_buf())),
    }
}

/// A new file beside this one, with its name.
fn begin(path: &Path) -> io::Result<(PathBuf, File)> {
    let beside = folder(path).join(format!(".solve-harness-{:016x}.part", rng::secret()));
    let file = File::create_new(&beside)?;
    Ok((beside, file))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (beside, mut file) = begin(path)?;
    let allow_as_before = |file: &File| match fs::metadata(path) {
        Ok(before) => file.set_permissions(before.permissions()),
        Err(_) => Ok(()),
    };
    let written =
        allow_as_before(&file).and_then(|()| file.write_all(text.as_bytes())).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(Reason::Usage, format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn empty(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("solve-harness-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn links_are_followed_and_files_beside_are_left_alone() {
        let folder = empty("links");
        let at = |name: &str| folder.join(name);
        let kept = |name: &str| fs::read_to_string(at(name)).unwrap();
        fs::create_dir(at("below")).unwrap();
        fs::write(at("below/report.json"), "old").unwrap();
        fs::set_permissions(at("below/report.json"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(at("link.part"), "mine").unwrap();
        fs::write(at("below/report.part"), "mine").unwrap();
        symlink("below/report.json", at("link.json")).unwrap();
        symlink("below/new.json", at("dangling.json")).unwrap();
        for name in ["link.json", "dangling.json"] {
            write_text(&at(name), "new").unwrap();
            assert!(at(name).is_symlink() && kept(name) == "new", "{name}");
        }
        assert_eq!([kept("below/report.json"), kept("below/new.json")], ["new", "new"]);
        assert_eq!(fs::metadata(at("below/report.json")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!([kept("link.part"), kept("below/report.part")], ["mine", "mine"]);
        symlink("circle.json", at("circle.json")).unwrap();
        assert!(write_text(&at("circle.json"), "new").is_err() && at("circle.json").is_symlink());
        assert!(write_text(&at("below"), "new").is_err());
        assert_eq!(fs::read_dir(at("below")).unwrap().count(), 3, "something was left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_pipe_and_an_open_file_are_written_to_and_stay() {
        let folder = empty("pipe");
        let path = folder.join("report.json");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(is_stream(&path));
        let there = path.clone();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            File::open(there).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        write_text(&path, "all of it").unwrap();
        assert_eq!(reader.join().unwrap(), "all of it");
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        fs::remove_file(&path).unwrap();

        fs::write(&path, "said before, ").unwrap();
        let open = File::open(&path).unwrap();
        write_text(&PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd())), "all of it").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "said before, all of it");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "something was left");
        fs::remove_dir_all(folder).unwrap();
    }
}
