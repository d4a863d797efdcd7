//! Debian's kernels for guests: found out, downloaded once, kept.
//!
//! `tests/vm/kernels.toml` names suites, no packages and no hosts. The mirror is
//! the one this machine's apt is set up with, asked of `apt-get indextargets`;
//! everything else happens in an apt state of our own below the cache folder, so
//! that neither apt's lists nor its settings change. apt checks signatures and
//! hashes:
//!
//! ```text
//! CACHE/vm/apt/SUITE/       sources.list, apt.conf, lists
//! CACHE/vm/kernels/NAME/    vmlinuz, about.json
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::topology::Clock;
use crate::Lacks;
use crate::workspace::{files, made, not_run, text_of};

/// Keys of Debian's archive, where the distribution puts them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Keys that apt trusts for every source.
const TRUSTED_PARTS: &str = "/etc/apt/trusted.gpg.d";

/// A row of `tests/vm/kernels.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// The package that always depends on the newest image.
    package: String,
    /// What the package's version has to begin with.
    #[serde(default)]
    version: String,
    /// In the order in which they are tried.
    pub(crate) suites: Vec<String>,
    pub(crate) matrix: Matrix,
    /// Tests that run on it beside those of `matrix`, by topology.
    #[serde(default)]
    pub(crate) also: BTreeMap<String, Vec<String>>,
    /// Machines on which the script of scheduling runs on it; on others it does where the kernel
    /// or the machine is named. All that were recorded unless told.
    pub(crate) scripts: Option<Vec<String>>,
    /// Whether not getting it is reported only.
    #[serde(default)]
    pub(crate) may_lack: bool,
    /// Whether it waits for a CPU that it brings up without saying that it waits.
    #[serde(default)]
    waits_unsaid: bool,
}

impl Kernel {
    /// What it is told beside what the machine wants. Where time is counted in instructions and
    /// it waits unsaid, it boots on one CPU, and the guest's first program brings up the others
    /// (specs/end-to-end.md#late).
    pub(crate) fn words(&self, clock: Clock) -> &'static str {
        match clock {
            Clock::Instructions if self.waits_unsaid => "maxcpus=1",
            Clock::Instructions | Clock::Host => "",
        }
    }
}

/// What runs on a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Matrix {
    /// Every topology and test.
    All,
    /// The smoke test.
    Smoke,
}

/// A kernel in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    pub(crate) image: PathBuf,
    /// Such as `6.12.95-1~bpo12+1`.
    pub(crate) version: String,
    pub(crate) suite: String,
}

/// The table of kernels.
pub(crate) fn table(root: &Path) -> Result<Vec<Kernel>> {
    let path = root.join("tests/vm/kernels.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Kernel>> {
    #[derive(Deserialize)]
    struct Table {
        kernel: Vec<Kernel>,
    }
    let Table { kernel: kernels } = toml_edit::de::from_str(text)?;
    for Kernel { name, suites, .. } in &kernels {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        ensure!(
            !name.is_empty() && name.chars().all(plain),
            "name: letters, digits, `.`, `-`, `_`, not {name:?}"
        );
        ensure!(!suites.is_empty(), "{name}: suites: a list of names is needed");
    }
    ensure!(kernels.iter().any(|k| k.matrix == Matrix::All), "no [[kernel]] has matrix = \"all\"");
    Ok(kernels)
}

/// The kernel, if it was downloaded before.
pub(crate) fn cached(cache: &Path, kernel: &Kernel) -> Option<Cached> {
    let folder = cache.join("kernels").join(&kernel.name);
    let image = folder.join("vmlinuz");
    let about: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("about.json")).ok()?).ok()?;
    let text = |key: &str| about[key].as_str().map(str::to_owned);
    image.is_file().then_some(())?;
    Some(Cached { image, version: text("version")?, suite: text("suite")? })
}

/// The kernel from the cache, or downloaded into it.
pub(crate) fn have(cache: &Path, kernel: &Kernel) -> Result<Cached> {
    match cached(cache, kernel) {
        Some(found) => Ok(found),
        None => fetch(cache, kernel),
    }
}

/// Downloads the kernel; what was there is replaced only when the new one is complete.
pub(crate) fn fetch(cache: &Path, kernel: &Kernel) -> Result<Cached> {
    let mirror = mirror()?;
    let mut whys = Vec::new();
    for suite in &kernel.suites {
        match fetch_from(cache, kernel, &mirror, suite) {
            Ok(()) => {
                return cached(cache, kernel).context("a kernel just stored can't be read again");
            }
            Err(why) => whys.push(format!("{suite}: {why:#}")),
        }
    }
    Err(anyhow::Error::new(Lacks(format!(
        "kernel {} can't be had: {}",
        kernel.name,
        whys.join("; ")
    ))))
}

fn fetch_from(cache: &Path, kernel: &Kernel, mirror: &str, suite: &str) -> Result<()> {
    let apt = Apt::set_up(cache, mirror, suite)?;
    let (package, version) = apt.resolve(kernel)?;
    eprintln!("kernel {}: {package} {version} from {suite}", kernel.name);
    let work = cache.join(format!("fetch.{}", std::process::id()));
    let done = apt
        .download(&package, &work)
        .and_then(|deb| unpack(&deb, &work))
        .and_then(|image| store(cache, kernel, &image, &package, &version, suite));
    // Whatever happened: a half download is of no use to anybody.
    let _ = fs::remove_dir_all(&work);
    done
}

/// Private state of apt for one suite.
struct Apt {
    config: PathBuf,
}

impl Apt {
    fn set_up(cache: &Path, mirror: &str, suite: &str) -> Result<Self> {
        let folder = cache.join("apt").join(suite);
        for sub in ["lists/partial", "archives/partial", "none"] {
            made(folder.join(sub))?;
        }
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
            Ok::<PathBuf, anyhow::Error>(path)
        };
        let keys = if Path::new(KEYRING).is_file() {
            format!("signed-by={KEYRING} ")
        } else if fs::read_dir(TRUSTED_PARTS).is_ok_and(|mut parts| parts.next().is_some()) {
            String::new()
        } else {
            eprintln!("no keys of Debian's archive here: packages are checked by hash only");
            "trusted=yes ".to_owned()
        };
        // Only the list of packages: no translations, no icons.
        write(
            "sources.list",
            format!("deb [{keys}arch=amd64 target=Packages] {mirror} {suite} main\n"),
        )?;
        write("status", String::new())?;
        let config = write("apt.conf", config(&folder))?;
        let apt = Self { config };
        text_of(apt.command("apt-get").args(["-qq", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.config).env("LC_ALL", "C");
        command
    }

    /// The package that holds the image, and its version.
    fn resolve(&self, kernel: &Kernel) -> Result<(String, String)> {
        let mut name = kernel.package.clone();
        // Today it takes one or two steps; a circle must not hold us.
        for _ in 0..5 {
            let text =
                text_of(self.command("apt-cache").args(["show", "--no-all-versions", &name]))?;
            let version = field(&text, "Version").context("apt-cache shows no version")?;
            ensure!(
                version.starts_with(&kernel.version),
                "{name} is {version} there, not {}",
                kernel.version
            );
            match next_package(&name, field(&text, "Depends").unwrap_or_default()) {
                Some(next) => name = next,
                None if name == kernel.package => bail!("{name} depends on no image"),
                None => return Ok((name, version.to_owned())),
            }
        }
        bail!("{} leads to no package with an image", kernel.package)
    }

    fn download(&self, package: &str, work: &Path) -> Result<PathBuf> {
        fs::create_dir_all(work).with_context(|| format!("can't make {}", work.display()))?;
        text_of(self.command("apt-get").args(["-qq", "download", package]).current_dir(work))?;
        match &files(work, "deb")?[..] {
            [path] => Ok(path.clone()),
            _ => bail!("apt-get left no single *.deb in {}", work.display()),
        }
    }
}

/// Settings that keep apt inside of `folder`. They come after the machine's own,
/// so that its proxies hold, and what it does after updates is cleared.
fn config(folder: &Path) -> String {
    let at = folder.display();
    format!(
        "#clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         Dir::State \"{at}\";\n\
         Dir::State::lists \"{at}/lists\";\n\
         Dir::State::status \"{at}/status\";\n\
         Dir::Cache \"{at}\";\n\
         Dir::Cache::archives \"{at}/archives\";\n\
         Dir::Cache::pkgcache \"\";\n\
         Dir::Cache::srcpkgcache \"\";\n\
         Dir::Etc::sourcelist \"{at}/sources.list\";\n\
         Dir::Etc::sourceparts \"{at}/none\";\n\
         Dir::Etc::preferences \"{at}/none/preferences\";\n\
         Dir::Etc::preferencesparts \"{at}/none\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures \"amd64\";\n\
         APT::Sandbox::User \"root\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::Languages \"none\";\n"
    )
}

/// The mirror of Debian that this machine's apt uses.
fn mirror() -> Result<String> {
    let format = "$(IDENTIFIER)|$(ORIGIN)|$(COMPONENT)|$(RELEASE)|$(REPO_URI)";
    let text = text_of(
        Command::new("apt-get").args(["indextargets", "--format", format]).env("LC_ALL", "C"),
    )?;
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = os.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.map(|name| name.trim_matches('"'));
    mirror_of(&text, codename).ok_or_else(|| {
        anyhow::Error::new(Lacks(
            "apt is set up with no mirror of Debian's main archive, from which kernels would come"
                .to_owned(),
        ))
    })
}

/// From lines as [`mirror`] asks for: the mirror of the release that runs here, or
/// else of any other that is no security archive. Before the first update of
/// apt's lists the origin is unknown; then the release's name has to do.
fn mirror_of(text: &str, codename: Option<&str>) -> Option<String> {
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split('|').collect();
        let [identifier, origin, component, release, uri] = words[..] else { return None };
        let debian = origin == "Debian" || (origin.starts_with('$') && codename == Some(release));
        let fits = identifier == "Packages" && component == "main" && debian;
        (fits && !release.contains("security")).then_some((release, uri))
    });
    let rows: Vec<_> = rows.collect();
    rows.iter()
        .find(|(release, _)| Some(*release) == codename)
        .or(rows.first())
        .map(|(_, uri)| (*uri).to_owned())
}

/// A field of the first record that `apt-cache show` prints.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The next package on the way to the image: what is depended on by the name of
/// an image or of a binary (since 7.2 the image is a package of its own).
fn next_package(name: &str, depends: &str) -> Option<String> {
    let names: Vec<&str> = depends
        .split(',')
        // Of alternatives the first is what apt takes.
        .filter_map(|one| one.split_whitespace().next())
        .filter(|&other| other != name)
        .collect();
    ["linux-binary-", "linux-image-"].iter().find_map(|prefix| {
        names.iter().find(|other| other.starts_with(prefix)).map(|&other| other.to_owned())
    })
}

/// The image out of a package, without the modules: what guests need is built in.
fn unpack(deb: &Path, work: &Path) -> Result<PathBuf> {
    let mut from = Command::new("dpkg-deb");
    from.arg("--fsys-tarfile").arg(deb).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut source = from.spawn().map_err(|e| not_run(&from, e))?;
    let stream = source.stdout.take().context("dpkg-deb's output is piped")?;
    let mut to = Command::new("tar");
    to.args(["-x", "-f", "-", "--wildcards", "-C"]).arg(work);
    to.args(["./boot/vmlinuz-*", "./lib/modules/*/vmlinuz", "./usr/lib/modules/*/vmlinuz"]);
    // A pattern without a match is an error to tar, not to us: what counts is what came out.
    to.stdin(stream).stderr(Stdio::null());
    to.status().map_err(|e| not_run(&to, e))?;
    ensure!(source.wait()?.success(), "`dpkg-deb --fsys-tarfile` failed");
    for folder in ["boot", "lib/modules", "usr/lib/modules"] {
        if let Some(image) = find_image(&work.join(folder)) {
            return Ok(image);
        }
    }
    bail!("{} holds no vmlinuz", deb.display())
}

fn find_image(folder: &Path) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_image(&path) {
                return Some(found);
            }
        } else if entry.file_name().to_string_lossy().starts_with("vmlinuz") {
            return Some(path);
        }
    }
    None
}

/// Puts the image where [`cached`] looks. The old `about.json` goes first, so that a
/// stop in between leaves no kernel rather than one under a wrong name.
fn store(
    cache: &Path,
    kernel: &Kernel,
    image: &Path,
    package: &str,
    version: &str,
    suite: &str,
) -> Result<()> {
    let folder = made(cache.join("kernels").join(&kernel.name))?;
    let about = folder.join("about.json");
    if about.exists() {
        fs::remove_file(&about)?;
    }
    fs::rename(image, folder.join("vmlinuz"))?;
    let text = json!({"package": package, "version": version, "suite": suite});
    let beside = folder.join("about.json.new");
    fs::write(&beside, format!("{text}\n"))?;
    fs::rename(&beside, &about).with_context(|| format!("can't write {}", about.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_the_release_that_runs() {
        let text = "\
Packages|Debian|main|bookworm-security|http://security.example/debian-security/
Packages|Other|main|bookworm|http://other.example/
Packages|Debian|main|bookworm-updates|http://updates.example/debian/
DEP-11|Debian|main|bookworm|http://icons.example/debian/
Packages|Debian|main|bookworm|http://mirror.example/debian/
";
        let is = |codename| mirror_of(text, codename);
        assert_eq!(is(Some("bookworm")).as_deref(), Some("http://mirror.example/debian/"));
        assert_eq!(is(Some("trixie")).as_deref(), Some("http://updates.example/debian/"));
        let fresh = "Packages|$(ORIGIN)|main|trixie|http://mirror.example/debian/\n";
        assert_eq!(
            mirror_of(fresh, Some("trixie")).as_deref(),
            Some("http://mirror.example/debian/")
        );
        assert_eq!(mirror_of(fresh, Some("noble")), None);
        assert_eq!(mirror_of("", Some("trixie")), None);
    }

    #[test]
    fn the_image_is_found_through_what_packages_depend_on() {
        let old = "linux-image-6.12.95+deb12-cloud-amd64 (= 6.12.95-1~bpo12+1)";
        assert_eq!(
            next_package("linux-image-cloud-amd64", old).as_deref(),
            Some("linux-image-6.12.95+deb12-cloud-amd64")
        );
        let new = "dracut | initramfs-tools (>= 0.120) | linux-image-odd, \
                   linux-base-7.3.4-cloud (= 7.3.4-1), linux-binary-7.3.4-cloud (= 7.3.4-1)";
        assert_eq!(
            next_package("linux-image-7.3.4-cloud", new).as_deref(),
            Some("linux-binary-7.3.4-cloud")
        );
        assert_eq!(next_package("linux-binary-7.3.4-cloud", "kmod, linux-base"), None);
    }

    #[test]
    fn a_field_is_taken_from_the_first_record() {
        let text = "Package: a\nVersion: 1\nDepends: x, y\n\nPackage: a\nVersion: 2\n";
        assert_eq!(field(text, "Version"), Some("1"));
        assert_eq!(field(text, "Depends"), Some("x, y"));
        assert_eq!(field("Package: a\n\nVersion: 2\n", "Version"), None);
    }

    #[test]
    fn the_table_in_the_tree_is_read_and_errors_name_the_key() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let kernels = table(&root).unwrap();
        assert_eq!(kernels.iter().filter(|k| k.matrix == Matrix::All).count(), 1);
        assert!(kernels.iter().any(|k| k.may_lack));
        let scripts = kernels.iter().flat_map(|k| k.scripts.iter().flatten());
        for topology in kernels.iter().flat_map(|k| k.also.keys()).chain(scripts) {
            assert!(
                root.join(format!("tests/vm/topologies/{topology}.toml")).exists(),
                "{topology}"
            );
        }
        let bad =
            "[[kernel]]\nname = \"a/b\"\npackage = \"p\"\nsuites = [\"s\"]\nmatrix = \"all\"\n";
        assert!(format!("{:#}", parse(bad).unwrap_err()).contains("name: letters"));
        let bad = bad.replace("a/b", "a").replace("all", "some");
        assert!(
            format!("{:#}", parse(&bad).unwrap_err())
                .contains("unknown variant `some`, expected `all` or `smoke`")
        );
    }

    #[test]
    fn apt_stays_inside_of_its_folder() {
        let text = config(Path::new("/cache/vm/apt/sid"));
        for line in text.lines().filter(|line| line.starts_with("Dir::")) {
            let value = line.split('"').nth(1).unwrap();
            assert!(value.is_empty() || value.starts_with("/cache/vm/apt/sid"), "{line}");
        }
        assert!(text.contains("#clear APT::Update::Post-Invoke;"));
    }
}
