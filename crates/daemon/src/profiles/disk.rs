//! Files that are there as a whole or not at all.

use super::{Gpu, Profiles, ProfilesError};
use serde::Serialize;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Longer than any file that we write; a test counts.
pub(super) const LONGEST_FILE: u64 = 64 << 20;
const EXTENSION: &str = "json";
/// Comes after the file's name, with a number after it.
const SET_ASIDE: &str = "set-aside";
/// How many of one file are kept that were set aside.
pub(super) const MOST_SET_ASIDE: usize = 3;
/// Of the model's name and the driver's, as much of it as is worth reading.
const LONGEST_PART: usize = 48;

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ProfilesError {
    move |source| ProfilesError::Io { what, path: path.to_path_buf(), source }
}

/// A name that is safe as a file's whatever the tenant says of model and driver, and another one for each two of them.
pub(super) fn file_name(Gpu { model, driver }: &Gpu) -> String {
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let safe = |text: &str| {
        let letters = text.chars().take(LONGEST_PART).map(|letter| if is_safe(letter) { letter } else { '-' });
        letters.collect::<String>()
    };
    // Neither text has a zero in it, so no two pairs are the same bytes.
    let digest = digest(format!("{model}\0{driver}").as_bytes());
    format!("{}-{}-{digest:08x}.{EXTENSION}", safe(model), safe(driver))
}

/// FNV-1a: stays the same over versions, which the standard library's hashes need not.
fn digest(bytes: &[u8]) -> u32 {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    bytes.iter().fold(BASIS, |digest, byte| (digest ^ u32::from(*byte)).wrapping_mul(PRIME))
}

/// Nothing if there is none. One that is too long comes back cut, and makes no sense then.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, ProfilesError> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(LONGEST_FILE).read_to_end(&mut bytes).map_err(io("read", path))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", path)(error)),
    };
    Ok(Some(bytes))
}

/// Writes to a file beside it, which then takes the name.
pub(super) fn write(folder: &Path, name: &str, profiles: &Profiles) -> Result<(), ProfilesError> {
    let path = folder.join(name);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io("make the folder", folder))?;
    // Gone by itself if anything fails before it has its name.
    let mut file = tempfile::Builder::new().prefix(".saving-").tempfile_in(folder).map_err(io("write in", folder))?;
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, serde_json::ser::PrettyFormatter::new());
    profiles.serialize(&mut writer).map_err(|error| io("write", &path)(error.into()))?;
    bytes.push(b'\n');
    file.write_all(&bytes).map_err(io("write", &path))?;
    file.as_file().sync_all().map_err(io("write", &path))?;
    file.persist(&path).map_err(|error| io("replace", &path)(error.error))?;
    // The name itself.
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io("write", folder))
}

/// Gives the file another name: number 1, and those before move up; the last goes.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, ProfilesError> {
    let numbered = |number: usize| path.with_extension(format!("{EXTENSION}.{SET_ASIDE}-{number}"));
    for number in (1..MOST_SET_ASIDE).rev() {
        match fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io("rename", &numbered(number))(error)),
            _ => {}
        }
    }
    fs::rename(path, numbered(1)).map_err(io("rename", path))?;
    Ok(numbered(1))
}

/// Files, and those set aside. A folder that cannot be read has none.
pub(super) fn count(folder: &Path) -> (usize, usize) {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let (ends, aside) = (format!(".{EXTENSION}"), format!(".{SET_ASIDE}-"));
    (
        names.iter().filter(|name| name.ends_with(&ends)).count(),
        names.iter().filter(|name| name.contains(&aside)).count(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_model_leads_out_of_the_folder() {
        for model in ["NVIDIA H200", "", "../../etc/passwd", ".", "ä\n\0", "x".repeat(500).as_str()] {
            let name = file_name(&Gpu { model: model.to_string(), driver: model.to_string() });
            assert!(name.len() < 120 && !name.starts_with('.'), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{name}");
        }
        let name = |model: &str, driver: &str| file_name(&Gpu { model: model.into(), driver: driver.into() });
        assert_ne!(name("A 1", "1"), name("A-1", "1"));
        assert_ne!(name("NVIDIA H200", "580.82.07"), name("NVIDIA H200", "580.95.05"), "one release, one file");
    }
}
