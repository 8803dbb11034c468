package packages

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// tool skips a test whose tool is not installed. On CI, a missing tool is a failure.
func tool(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed", name)
			}
			t.Skipf("skipped: %s is not installed", name)
		}
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// build builds what a release has for this machine into a directory, under an umask.
func build(dir, umask string) error {
	cmd := exec.Command("sh", "-c", "umask "+umask+`; exec "$@"`, "sh", filepath.Join("..", "..", "deploy", "packages", "release"), dir, "linux/"+runtime.GOARCH)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "BUILDVCS=false", "VERSION=1.2.3")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// packaged returns the files of the packages, which are built once.
func packaged(t *testing.T) (deb, rpm string) {
	t.Helper()
	built.once.Do(func() {
		var dir string
		if dir, built.err = os.MkdirTemp("", "packages"); built.err == nil {
			built.dir, built.err = dir, build(dir, "022")
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return find(t, "*.deb"), find(t, "*.rpm")
}

// find returns the one file of the release that has such a name.
func find(t *testing.T, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(built.dir, pattern))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q, %v", pattern, list, err)
	}
	return list[0]
}

// contents are the files of both packages, with their modes.
const contents = `-rw-r--r-- /etc/lockstep/lockstep.toml
drwx------ /etc/lockstep/secrets
-rwxr-xr-x /usr/bin/lockstep
-rw-r--r-- /usr/lib/systemd/system/lockstep.service
-rw-r--r-- /usr/lib/systemd/system/lockstep.socket
-rw-r--r-- /usr/share/bash-completion/completions/lockstep
-rw-r--r-- /usr/share/doc/lockstep/copyright
-rw-r--r-- /usr/share/doc/lockstep/systemd.md
-rw-r--r-- /usr/share/fish/vendor_completions.d/lockstep.fish
-rw-r--r-- /usr/share/zsh/vendor-completions/_lockstep`

// TestPackages: the packages have just these files, which belong to root, and keep a changed configuration.
func TestPackages(t *testing.T) {
	tool(t, "dpkg-deb", "rpm")
	deb, rpm := packaged(t)
	line := regexp.MustCompile(`(?m)^(\S{10})\s.*?\s\.?(/\S*)$`)
	of := func(list string) string {
		var lines []string
		for _, m := range line.FindAllStringSubmatch(list, -1) {
			if m[1][0] == 'd' && m[2] != "/etc/lockstep/secrets/" && m[2] != "/etc/lockstep/secrets" {
				continue // a directory of the system's
			}
			lines = append(lines, m[1]+" "+strings.TrimSuffix(m[2], "/"))
		}
		slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[11:], b[11:]) })
		return strings.Join(lines, "\n")
	}
	for name, list := range map[string]string{"deb": output(t, "dpkg-deb", "--contents", deb), "rpm": output(t, "rpm", "-qplv", rpm)} {
		if got := of(list); got != contents {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, contents)
		}
		for l := range strings.Lines(list) {
			if !strings.Contains(l, "root/root") && !regexp.MustCompile(`\sroot\s+root\s`).MatchString(l) {
				t.Errorf("%s: not root's: %s", name, l)
			}
		}
	}
	if got := output(t, "dpkg-deb", "--info", deb, "conffiles"); got != "/etc/lockstep/lockstep.toml\n" {
		t.Errorf("conffiles %q", got)
	}
	if got := output(t, "rpm", "-qpc", rpm); got != "/etc/lockstep/lockstep.toml\n" {
		t.Errorf("configuration files %q", got)
	}
	for _, want := range []string{"Package: lockstep", "Version: 1.2.3", "Architecture: "} {
		if got := output(t, "dpkg-deb", "--info", deb); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestReleaseIsReproducible: another umask and another time of the build change no byte.
func TestReleaseIsReproducible(t *testing.T) {
	packaged(t)
	again := t.TempDir()
	if err := build(again, "077"); err != nil {
		t.Fatal(err)
	}
	var sums [2]string
	for i, dir := range []string{built.dir, again} {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 4 {
		t.Errorf("%s\nand then\n%s", sums[0], sums[1])
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	if cmd.Dir = again; cmd.Run() != nil {
		t.Error("the checksums are wrong")
	}
}

// TestArchive: the archive has the program, which runs, and the list of its modules names each module that is linked in.
func TestArchive(t *testing.T) {
	packaged(t)
	dir := t.TempDir()
	output(t, "tar", "--extract", "--gzip", "--file", find(t, "*.tar.gz"), "--directory", dir)
	program := filepath.Join(dir, "lockstep-1.2.3-linux-"+runtime.GOARCH, "lockstep")
	if got := output(t, program, "version"); !strings.HasPrefix(got, "lockstep ") {
		t.Error(got)
	}
	var bill struct {
		Components []struct{ Name, Version string }
	}
	text, err := os.ReadFile(find(t, "*.cdx.json"))
	if err == nil {
		err = json.Unmarshal(text, &bill)
	}
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range bill.Components {
		listed[c.Name+" "+c.Version] = true
	}
	linked := 0
	for l := range strings.Lines(output(t, "go", "version", "-m", program)) {
		if f := strings.Fields(l); len(f) >= 3 && f[0] == "dep" {
			if linked++; !listed[f[1]+" "+f[2]] {
				t.Errorf("%s %s is not listed", f[1], f[2])
			}
		}
	}
	if linked < 20 {
		t.Errorf("%d modules are linked in", linked)
	}
}

// TestGoInstall: who has only the module can install the program by its path.
func TestGoInstall(t *testing.T) {
	const module, version = "github.com/lockstep-io/lockstep", "v1.2.3"
	proxy, bin := t.TempDir(), t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("..", "..")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	if err := zipModule(&zipped, root, module+"@"+version+"/"); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{version + ".mod": mod, version + ".info": fmt.Appendf(nil, `{"Version":%q}`, version), version + ".zip": zipped.Bytes(), "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	others := strings.TrimSpace(output(t, "go", "env", "GOPROXY"))
	cmd := exec.Command("go", "install", module+"/cmd/lockstep@"+version)
	cmd.Dir = bin
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+filepath.Join(bin, "modules"), "GONOSUMDB="+module, "GONOPROXY=none", "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(output(t, "go", "env", "GOMODCACHE")), "cache", "download")+","+others)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := output(t, filepath.Join(bin, "lockstep"), "version"); !strings.HasPrefix(got, "lockstep ") {
		t.Error(got)
	}
}

// zipModule writes the files of the module that are under version control, without those of other modules below it, as a module proxy has them.
func zipModule(w io.Writer, root, prefix string) error {
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		return err
	}
	var others []string
	files := strings.Split(strings.TrimSuffix(string(names), "\x00"), "\x00")
	for _, name := range files {
		if dir, is := strings.CutSuffix(name, "/go.mod"); is {
			others = append(others, dir+"/")
		}
	}
	z := zip.NewWriter(w)
	for _, name := range files {
		if slices.ContainsFunc(others, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return err
		}
		to, err := z.Create(prefix + name)
		if err != nil {
			return err
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
	return z.Close()
}

// mostExposed is the most that `systemd-analyze security` may give the unit, in tenths: docs/systemd.md tells the figure.
const mostExposed = "12"

// TestUnits: systemd finds no fault in the units, and the service is as little exposed as docs/systemd.md says.
func TestUnits(t *testing.T) {
	tool(t, "systemd-analyze")
	dir, source := t.TempDir(), filepath.Join("..", "..", "deploy", "systemd")
	for _, name := range []string{"lockstep.service", "lockstep.socket"} {
		unit, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		unit = []byte(strings.ReplaceAll(string(unit), "/usr/bin/lockstep", nodes.Binary(t)))
		if err := os.WriteFile(filepath.Join(dir, name), unit, 0o644); err != nil {
			t.Fatal(err)
		}
		if out := output(t, "systemd-analyze", "--man=no", "verify", filepath.Join(dir, name)); strings.Contains(out, "lockstep") {
			t.Errorf("%s: %s", name, out)
		}
	}
	out := output(t, "systemd-analyze", "security", "--offline=yes", "--threshold="+mostExposed, filepath.Join(dir, "lockstep.service"))
	t.Log(out[strings.LastIndex(out, "Overall"):])
}

// TestSettings: the configuration file of the packages is right as it is, and with what its comments propose.
func TestSettings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "systemd", "lockstep.toml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"secret_password", "secret_peers"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("0123456789abcdef0123456789abcdef01234567"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	proposed := regexp.MustCompile(`(?m)^(id|listen|http-listen) = .*\n`).ReplaceAllString(string(text), "")
	proposed = regexp.MustCompile(`(?m)^#([a-z\[])`).ReplaceAllString(proposed, "$1")
	proposed = strings.ReplaceAll(proposed, "/run/credentials/lockstep.service", dir)
	for name, text := range map[string]string{"as it is": string(text), "as proposed": proposed} {
		file := filepath.Join(dir, "lockstep.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(nodes.Binary(t), "serve", "--config", file, "--config-check").CombinedOutput()
		if err := errors.Join(err); err != nil || !strings.Contains(string(out), "the configuration is right") {
			t.Errorf("%s: %v: %s\n%s", name, err, out, text)
		}
	}
}
