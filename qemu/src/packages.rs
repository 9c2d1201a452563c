//! Debian's packages, unpacked and not installed.
//!
//! apt works in a folder of its own, with the machine's sources and keys; lists, cache and architectures of the system
//! stay as they are. Each version of a package is unpacked once. Lists are fetched if there are none, and again if the
//! mirror no longer has a version that they name.

use crate::tools::said;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Architecture of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// aarch64.
    Arm64,
}

impl Arch {
    /// Returns Debian's name of the architecture.
    pub fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Unpacked packages, and the folder into which apt fetches more.
pub struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Opens the packages below the target folder.
    pub fn open() -> Result<Self> {
        for program in ["apt-get", "apt-cache", "dpkg-deb"] {
            ensure!(
                crate::tools::find(program).is_some(),
                "{program} is not here: the guests' kernels are packages of Debian 12, which apt fetches"
            );
        }
        let packages = Self { folder: crate::target_dir().join("qemu/packages") };
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            let path = packages.folder.join(folder);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        // An empty list of installed packages.
        fs::write(packages.folder.join("state/status"), "").context("cannot write apt's state")?;
        Ok(packages)
    }

    /// Returns the folder of an unpacked package. Fetches the package if it is missing.
    pub fn unpacked(&self, name: &str, arch: Arch) -> Result<PathBuf> {
        let _one_at_a_time = self.lock()?;
        match self.find_or_fetch(name, arch) {
            Ok(folder) => Ok(folder),
            Err(_) => {
                self.apt("apt-get", &["update"]).context("cannot fetch the lists of Debian's packages")?;
                self.find_or_fetch(name, arch)
            }
        }
    }

    /// Returns the folder of the first package on which a package without content depends.
    pub fn unpacked_behind(&self, name: &str, arch: Arch) -> Result<PathBuf> {
        let wanted = || self.field(name, arch, "Depends").and_then(|depends| first_dependency(&depends));
        let behind = {
            let _one_at_a_time = self.lock()?;
            match wanted() {
                Ok(behind) => behind,
                Err(_) => {
                    self.apt("apt-get", &["update"]).context("cannot fetch the lists of Debian's packages")?;
                    wanted()?
                }
            }
        };
        self.unpacked(&behind, arch)
    }

    /// Returns the `.deb` files of these packages and their dependencies, as apt would install them in an empty system.
    pub fn closure(&self, names: &[&str], arch: Arch) -> Result<Vec<PathBuf>> {
        let _one_at_a_time = self.lock()?;
        match self.find_or_fetch_closure(names, arch) {
            Ok(packages) => Ok(packages),
            Err(_) => {
                self.apt("apt-get", &["update"]).context("cannot fetch the lists of Debian's packages")?;
                self.find_or_fetch_closure(names, arch)
            }
        }
    }

    fn find_or_fetch_closure(&self, names: &[&str], arch: Arch) -> Result<Vec<PathBuf>> {
        let native = format!("APT::Architecture={}", arch.debian());
        let install = |how: &str| {
            let args = ["-o", &native, "install", "--no-install-recommends", "--yes", how];
            self.apt("apt-get", &[&args, names].concat())
        };
        let plan = install("--simulate").context("apt finds no way to install the packages")?;
        install("--download-only").context("cannot fetch Debian's packages")?;
        let archives = self.folder.join("cache/archives");
        let files: Vec<PathBuf> = plan.lines().filter_map(archive_name).map(|name| archives.join(name)).collect();
        for file in &files {
            ensure!(file.is_file(), "apt fetched no {}", file.display());
        }
        ensure!(files.len() >= names.len(), "apt plans {} packages for {}", files.len(), names.len());
        Ok(files)
    }

    fn lock(&self) -> Result<fs::File> {
        let file = fs::File::create(self.folder.join("lock")).context("cannot make a lock")?;
        file.lock().context("cannot lock the packages")?;
        Ok(file)
    }

    fn find_or_fetch(&self, name: &str, arch: Arch) -> Result<PathBuf> {
        let version = self.field(name, arch, "Version")?;
        let folder = self.folder.join(format!("{name}_{}_{}", version.replace(':', "-"), arch.debian()));
        if folder.is_dir() {
            return Ok(folder);
        }
        eprintln!("fetching Debian's package {name}");
        let download = tempfile::tempdir_in(&self.folder).context("cannot make a folder to download to")?;
        let package = format!("{name}:{}={version}", arch.debian());
        self.apt_in(download.path(), "apt-get", &["download", &package])
            .with_context(|| format!("cannot fetch Debian's package {name}"))?;
        let deb = fs::read_dir(download.path())?.flatten().map(|entry| entry.path()).next();
        let deb = deb.with_context(|| format!("apt-get download {package} gave no file"))?;
        let unpacking = download.path().join("unpacked");
        said(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacking))
            .with_context(|| format!("cannot unpack {}", deb.display()))?;
        fs::rename(&unpacking, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// Returns a field of a package's newest version.
    fn field(&self, name: &str, arch: Arch, field: &str) -> Result<String> {
        let package = format!("{name}:{}", arch.debian());
        let shown = self.apt("apt-cache", &["show", "--no-all-versions", &package])?;
        let value = shown.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        let value = value.with_context(|| format!("apt-cache knows no {field} of {package}"))?;
        Ok(value.to_string())
    }

    fn apt(&self, program: &str, args: &[&str]) -> Result<String> {
        self.apt_in(&self.folder, program, args)
    }

    fn apt_in(&self, folder: &Path, program: &str, args: &[&str]) -> Result<String> {
        let (state, cache) = (self.folder.join("state"), self.folder.join("cache"));
        let mut command = Command::new(program);
        command.current_dir(folder).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        for option in [
            format!("Dir::State={}", state.display()),
            format!("Dir::State::status={}", state.join("status").display()),
            format!("Dir::Cache={}", cache.display()),
            // The system's configuration may have switched these off.
            "Dir::Cache::pkgcache=pkgcache.bin".into(),
            "Dir::Cache::srcpkgcache=srcpkgcache.bin".into(),
            "APT::Architectures::=amd64".into(),
            "APT::Architectures::=arm64".into(),
            "Acquire::Languages=none".into(),
            "Acquire::Retries=3".into(),
            // apt's own user may not write below the target folder.
            "APT::Sandbox::User=".into(),
        ] {
            command.args(["-o", &option]);
        }
        let output = said(command.args(args))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the first package of a list: `a` for `a (= 1), b`.
fn first_dependency(depends: &str) -> Result<String> {
    let name = depends.split([',', ' ', '|']).next().filter(|name| !name.is_empty());
    Ok(name.with_context(|| format!("no package in `{depends}`"))?.to_string())
}

/// Returns the file in apt's cache for a line of its plan, such as `Inst mount (1:2.3 Debian:12.1/stable [arm64])`.
fn archive_name(line: &str) -> Option<String> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
    let (version, rest) = rest.split_once(' ')?;
    let arch = rest.split_once('[')?.1.split_once(']')?.0;
    Some(format!("{name}_{}_{arch}.deb", version.replace(':', "%3a")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_stands_for_its_first_dependency() {
        let depends = "linux-image-6.1.0-56-amd64 (= 6.1.192-2)";
        assert_eq!(first_dependency(depends).unwrap(), "linux-image-6.1.0-56-amd64");
        assert_eq!(first_dependency("a, b").unwrap(), "a");
        assert!(first_dependency("").is_err());
    }

    #[test]
    fn a_plan_names_files() {
        let line = "Inst libc6 (1:2.36-9+deb12u14 Debian:12.15/oldstable, Debian-Security:12 [arm64]) []";
        assert_eq!(archive_name(line).as_deref(), Some("libc6_1%3a2.36-9+deb12u14_arm64.deb"));
        assert_eq!(archive_name("Conf libc6 (2.36-9 Debian:12.15/oldstable [arm64])"), None);
    }
}
