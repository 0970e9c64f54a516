package deploytest

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// output runs a command and returns what it wrote to standard output; the test fails if the command does.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errors bytes.Buffer
	cmd.Stderr = &errors
	written, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, written, errors.Bytes())
	}
	return string(written)
}

// copySources copies the files of the repository that git knows, and new ones, to a folder.
func copySources(t *testing.T, to string) {
	t.Helper()
	script := `cd "$1"; git ls-files -z --cached --others --exclude-standard | xargs -0 -I{} sh -c 'test -e "$1" && printf "%s\0" "$1"' _ {} | tar --null -T - -cf - | tar -xf - -C "$2"`
	output(t, exec.CommandContext(t.Context(), "bash", "-c", script, "_", root, to))
}

// buildPackages runs deploy/package/build in sources for this machine's architecture and returns the folder that it wrote.
func buildPackages(t *testing.T, sources string) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), filepath.Join(sources, "deploy/package/build"))
	// A compressor that is fast: xz takes a minute.
	cmd.Env = append(os.Environ(), "VERSION=v1.2.3", "COMMIT=abc", "SOURCE_DATE_EPOCH=1700000000", "ARCHS="+runtime.GOARCH, "COMPRESSION=gzip-1", "DIST="+dist)
	output(t, cmd)
	return dist
}

// TestPackages builds the packages twice, in different folders, and requires the same bytes. Then it installs the Debian
// package over an image of this machine and starts the server in it.
func TestPackages(t *testing.T) {
	t.Parallel()
	requireProgram(t, "dpkg-deb", "dpkg")
	var sums []string
	var dist string
	for _, folder := range []string{"one", "another/with a space"} {
		sources := filepath.Join(t.TempDir(), folder)
		if err := os.MkdirAll(sources, 0o755); err != nil {
			t.Fatal(err)
		}
		copySources(t, sources)
		dist = buildPackages(t, sources)
		sum, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(sum))
	}
	if diff := cmp.Diff(sums[0], sums[1]); diff != "" {
		t.Errorf("two builds of the same sources differ:\n%s", diff)
	}
	name := "stoa_1.2.3_linux_" + runtime.GOARCH
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dist
	if got := output(t, check); strings.Count(got, ": OK") != 3 {
		t.Errorf("the sums are of other files than the binary, the package and the list of modules:\n%s", got)
	}
	checkBinary(t, filepath.Join(dist, name))
	checkModules(t, filepath.Join(dist, name+".cdx.json"))
	deb := filepath.Join(dist, "stoa_1.2.3_"+runtime.GOARCH+".deb")
	checkPackage(t, deb)
	t.Run("lintian", func(t *testing.T) {
		requireProgram(t, "lintian", "lintian")
		// The default address of the maintainer is none.
		run(t, "lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", "bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact", deb)
	})
	t.Run("image", func(t *testing.T) { checkImage(t, filepath.Join(dist, "image")) })
	t.Run("install", func(t *testing.T) { checkInstallation(t, deb) })
}

// maxBinaryBytes is the size that docs/operations/size.md gives for the binary, and 2 % for what is added.
const maxBinaryBytes = 77_000_000

// checkBinary checks that a program is static and not larger than maxBinaryBytes.
func checkBinary(t *testing.T, file string) {
	t.Helper()
	program, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) != 0 {
		t.Errorf("the binary needs the libraries %v (%v)", libraries, err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() > maxBinaryBytes {
		t.Errorf("the binary has %d bytes, want at most %d (%v): see docs/operations/size.md", info.Size(), maxBinaryBytes, err)
	}
	if got := output(t, exec.CommandContext(t.Context(), file, "version")); !strings.Contains(got, "stoa v1.2.3 (commit abc,") {
		t.Errorf("the version is %q", got)
	}
}

// checkModules checks that a list of modules has those of go.mod that the program imports, with their versions.
func checkModules(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		BomFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, c := range list.Components {
		versions[c.Name] = c.Version
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"github.com/jackc/pgx/v5", "github.com/alecthomas/kong", "modernc.org/sqlite"} {
		m := regexp.MustCompile(regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(mod)
		if len(m) != 2 || versions[module] != string(m[1]) {
			t.Errorf("the list of modules has %s %q, want that of go.mod", module, versions[module])
		}
	}
	if list.BomFormat != "CycloneDX" || versions["std"] == "" {
		t.Errorf("the list of modules is %q and has the standard library %q", list.BomFormat, versions["std"])
	}
}

// checkPackage checks the files of a Debian package, their owners and modes.
func checkPackage(t *testing.T, deb string) {
	t.Helper()
	var files []string
	for line := range strings.Lines(output(t, exec.CommandContext(t.Context(), "dpkg-deb", "--contents", deb))) {
		if fields := strings.Fields(line); !strings.HasSuffix(fields[5], "/") {
			files = append(files, fields[0]+" "+fields[1]+" "+fields[5])
		}
	}
	want := []string{
		"-rw-r----- root/root ./etc/stoa/stoa.env", "-rw-r----- root/root ./etc/stoa/stoa.yaml",
		"-rwxr-xr-x root/root ./usr/bin/stoa", "-rw-r--r-- root/root ./usr/lib/systemd/system/stoa.service", "-rw-r--r-- root/root ./usr/share/doc/stoa/changelog.gz", "-rw-r--r-- root/root ./usr/share/doc/stoa/copyright",
		"-rw-r--r-- root/root ./usr/share/lintian/overrides/stoa", "-rw-r--r-- root/root ./usr/share/man/man1/stoa.1.gz",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("the package has other files (-want +got):\n%s", diff)
	}
}

// installation is what runs in the image of this machine: it installs the package, starts the server as the unit does, asks
// it, checks the deployment, and removes the package.
const installation = `
set -e
fail() { echo "FAILED: $*"; exit 1; }
mkdir -p "$1/u" "$1/w" "$1/root"
mount -t tmpfs tmpfs "$1" && mkdir "$1/u" "$1/w" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/u,workdir=$1/w" "$1/root" || { echo NO-OVERLAY; exit 0; }
mount --rbind /proc "$1/root/proc"; mount --rbind /dev "$1/root/dev"
cat "$2" >"$1/root/tmp/stoa.deb"
chroot "$1/root" sh -ec '
  port=$1
  dpkg -i /tmp/stoa.deb
  test "$(stat -c %U:%G:%a /etc/stoa/stoa.env)" = root:stoa:640
  test "$(stat -c %a /etc/stoa)" = 750
  test "$(stat -c %U:%G:%a /var/lib/stoa)" = stoa:stoa:700
  # Before the first start, as docs/operations/doctor.md recommends.
  runuser -u stoa -- sh -c "cd /var/lib/stoa && set -a && . /etc/stoa/stoa.env && exec stoa doctor --config /etc/stoa/stoa.yaml" >/tmp/doctor || { cat /tmp/doctor; exit 1; }
  grep "there is no file /var/lib/stoa/stoa.db yet" /tmp/doctor
  # What systemd does: the variables, the user and its home.
  sed "s|^ExecStart=||p;d" /usr/lib/systemd/system/stoa.service >/tmp/start
  set -a; . /etc/stoa/stoa.env; STOA_PORT=$port STOA_GRPC_PORT=0 HOME=/var/lib/stoa; set +a
  cd /var/lib/stoa
  setpriv --reuid stoa --regid stoa --clear-groups --no-new-privs --bounding-set -all $(cat /tmp/start) >/tmp/log 2>&1 &
  server=$!
  trap "kill -9 $server 2>/dev/null || true" EXIT
  for i in $(seq 300); do stoa health >/dev/null 2>&1 && break; sleep 0.1; done
  stoa health || { cat /tmp/log; exit 1; }
  stoa health --ready
  # As docs/operations/install.md does it.
  runuser -u stoa -- sh -c "cd /var/lib/stoa && set -a && . /etc/stoa/stoa.env && exec stoa doctor --config /etc/stoa/stoa.yaml" >/tmp/doctor || { cat /tmp/doctor; exit 1; }
  cat /tmp/doctor
  test "$(stat -c %U:%a /var/lib/stoa/stoa.secrets)" = stoa:600
  echo "LISTENS $(grep -l "" /proc/$server/net/tcp >/dev/null; awk -v p=$(printf %04X $port) "\$2 ~ p\"\$\" && \$4 == \"0A\" {print \$2}" /proc/$server/net/tcp /proc/$server/net/tcp6)"
  kill $server
  wait $server
  dpkg -r stoa
  test -e /etc/stoa/stoa.env
  dpkg -P stoa
  test ! -e /etc/stoa
  test -e /var/lib/stoa/stoa.db
' _ "$3" || fail "see above"
echo INSTALLED
`

// checkInstallation installs a package over an image of this machine, in a mount namespace of its own.
func checkInstallation(t *testing.T, deb string) {
	if os.Getuid() != 0 {
		fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: only root can install the package over an image of this machine\n", t.Name())
		t.SkipNow()
	}
	port := freePort(t)
	got := output(t, exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", installation, "_", t.TempDir(), deb, strconv.Itoa(port)))
	if strings.Contains(got, "NO-OVERLAY") {
		fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOT TESTED: this kernel mounts no overlay\n", t.Name())
		t.SkipNow()
	}
	if !strings.Contains(got, "INSTALLED") {
		t.Errorf("the installation failed:\n%s", got)
	}
	if want := fmt.Sprintf("LISTENS 0100007F:%04X\n", port); !strings.Contains(got, want) {
		t.Errorf("the server does not listen on loopback alone, want %q in:\n%s", want, got)
	}
	for _, want := range []string{"ok    configuration    /etc/stoa/stoa.yaml", "ok    migrations       ", "ok    master_key       decrypts the signing keys", ", 0 failed, "} {
		if !strings.Contains(got, want) {
			t.Errorf("stoa doctor does not write %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "active (running)") {
		t.Error("the installation started the service")
	}
}

// maxExposure is the exposure that "systemd-analyze security" may find, in tenths; 10 is no protection at all.
const maxExposure = 20

// TestUnit checks the unit and how much it exposes.
func TestUnit(t *testing.T) {
	t.Parallel()
	requireProgram(t, "systemd-analyze", "systemd")
	unit, err := os.ReadFile(filepath.Join(root, "deploy/systemd/stoa.service"))
	if err != nil {
		t.Fatal(err)
	}
	// The programs that the unit names are not on this machine.
	text := strings.Replace(string(unit), "/usr/bin/stoa", "/bin/true", 1)
	text = strings.Replace(text, "Documentation=man:stoa(1)\n", "", 1)
	file := filepath.Join(t.TempDir(), "stoa.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil || len(newerKey.ReplaceAll(out, nil)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	report := output(t, exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--threshold="+strconv.Itoa(maxExposure), file))
	m := regexp.MustCompile(`Overall exposure level[^:]*: (\S+)`).FindStringSubmatch(report)
	if m == nil {
		t.Fatalf("systemd-analyze security shows no level:\n%s", report)
	}
	t.Logf("the exposure of stoa.service is %s of 10", m[1])
	for line, reason := range map[string]string{
		"TimeoutStopSec=40":          "it waits for --shutdown-timeout (30 s) and 10 s",
		"StartLimitIntervalSec=0":    "neither restarts of an operator nor an outage of the database use up the starts",
		"RestartMaxDelaySec=30":      "it serves soon after an outage",
		"RestartPreventExitStatus=2": "a wrong setting is not cured by further starts",
		"Type=notify":                "systemctl start returns when the server answers",
		"NotifyAccess=main":          "programs of apps cannot speak for the server",
		"TimeoutStartSec=infinity":   "a migration is not killed",
	} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit has no line %s: %s", line, reason)
		}
	}
}

// newerKey matches what systemd before version 254 (Debian 12) reports about the growing pauses between restarts, which
// it ignores.
var newerKey = regexp.MustCompile(`(?m)^.*Unknown key '(?:RestartSteps|RestartMaxDelaySec)' in section \[Service\], ignoring\.\n`)
