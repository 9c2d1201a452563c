//! A kernel's image, and its modules in the order in which they load.
//!
//! Debian's packages bring no `modules.dep`, which depmod makes at installation. So this module reads the dependencies
//! as depmod does, from `.modinfo` in each module.

use crate::packages::{Arch, Packages};
use crate::tools::said;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel that a guest boots.
#[derive(Clone, Debug)]
pub struct GuestKernel {
    /// File for QEMU's `-kernel`.
    pub image: PathBuf,
    /// Release, such as `6.1.0-56-amd64`.
    pub release: String,
    modules: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
}

/// A module as insmod takes it.
#[derive(Clone, Debug)]
pub struct KernelModule {
    /// Name with underscores.
    pub name: String,
    /// Uncompressed bytes of the file.
    pub bytes: Vec<u8>,
}

impl GuestKernel {
    /// Opens Debian's kernel behind a package such as `linux-image-amd64`.
    pub fn debian(packages: &Packages, package: &str, arch: Arch) -> Result<Self> {
        Self::in_folder(&packages.unpacked_behind(package, arch)?)
    }

    fn in_folder(root: &Path) -> Result<Self> {
        let folder = only_entry(&root.join("lib/modules"))?;
        let release = folder.file_name().and_then(|name| name.to_str()).context("a release")?.to_string();
        let image = root.join(format!("boot/vmlinuz-{release}"));
        ensure!(image.is_file(), "{} is not there", image.display());
        let mut modules = BTreeMap::new();
        collect(&folder.join("kernel"), &mut modules)?;
        let list = fs::read_to_string(folder.join("modules.builtin")).context("no list of built-in modules")?;
        let built_in = list.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Self { image, release, modules, built_in })
    }

    /// Returns these modules and all that they need, each after the modules that it needs, without built-in ones.
    pub fn modules(&self, names: &[&str]) -> Result<Vec<KernelModule>> {
        let mut loaded = Vec::new();
        for name in names {
            self.add(&name.replace('-', "_"), &mut loaded)?;
        }
        Ok(loaded)
    }

    fn add(&self, name: &str, loaded: &mut Vec<KernelModule>) -> Result<()> {
        if self.built_in.iter().any(|built_in| built_in == name) || loaded.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let path = self.modules.get(name);
        let path = path.with_context(|| format!("the kernel {} has no module {name}", self.release))?;
        let bytes = content(path)?;
        for needed in dependencies(&bytes) {
            self.add(&needed, loaded)?;
        }
        loaded.push(KernelModule { name: name.to_string(), bytes });
        Ok(())
    }
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?.flatten();
    let entry = entries.next().with_context(|| format!("{} is empty", folder.display()))?;
    Ok(entry.path())
}

/// Adds all modules below a folder by their names.
fn collect(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, modules)?;
        } else if let Some(name) = module_name(&path) {
            modules.insert(name, path);
        }
    }
    Ok(())
}

/// Returns the name of a module: `nvme_tcp` for `kernel/drivers/nvme/host/nvme-tcp.ko.xz`.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = file.strip_suffix(".ko").or_else(|| file.strip_suffix(".ko.xz"))?;
    Some(stem.replace('-', "_"))
}

/// Reads a module, and decompresses it here, since not every build of busybox can.
fn content(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = said(Command::new("xz").arg("-dc").arg(path));
        return Ok(output.with_context(|| format!("cannot decompress {}", path.display()))?.stdout);
    }
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the modules that a module needs. `.modinfo` holds `depends=a,b`, followed by a zero byte.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = &module[at + KEY.len()..];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    let names = String::from_utf8_lossy(&value[..end]).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(depends: &str) -> Vec<u8> {
        format!("\x7fELF junk\0license=GPL\0depends={depends}\0retpoline=Y\0").into_bytes()
    }

    #[test]
    fn each_module_comes_once_and_after_those_it_needs() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/modules/6.1.0-1-amd64");
        let folder = modules.join("kernel/drivers/nvme");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/vmlinuz-6.1.0-1-amd64"), "").unwrap();
        fs::write(modules.join("modules.builtin"), "kernel/lib/crc16.ko\n").unwrap();
        for (file, depends) in
            [("nvme-tcp", "nvme-fabrics,nvme-core"), ("nvme-fabrics", "nvme-core"), ("nvme-core", "t10-pi,crc16")]
        {
            fs::write(folder.join(format!("{file}.ko")), fake(depends)).unwrap();
        }
        fs::write(folder.join("t10-pi.ko"), fake("")).unwrap();
        let kernel = GuestKernel::in_folder(root.path()).unwrap();
        assert_eq!(kernel.release, "6.1.0-1-amd64");
        let names = |wanted: &[&str]| -> Vec<String> {
            kernel.modules(wanted).unwrap().into_iter().map(|module| module.name).collect()
        };
        assert_eq!(names(&["nvme-tcp", "nvme_core"]), ["t10_pi", "nvme_core", "nvme_fabrics", "nvme_tcp"]);
        assert!(kernel.modules(&["ext4"]).unwrap_err().to_string().contains("no module ext4"));
    }

    #[test]
    fn dependencies_end_at_the_zero_byte() {
        assert_eq!(dependencies(&fake("a-b,c")), ["a_b", "c"]);
        assert!(dependencies(&fake("")).is_empty());
        assert!(dependencies(b"no modinfo").is_empty());
    }
}
