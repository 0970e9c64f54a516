package grant_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/grant"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, out, err string }{
		{"none", `[]`, `[]`, ""},
		{"in order and once", `["stdio", "sqlite", "stdio"]`, `["sqlite","stdio"]`, ""},
		{"roots", `[{"filesystem": ["/srv/b", "/srv/a/", "/srv/a"]}, {"command": ["/srv/a"]}, {"filesystem": ["/data/../data"]}]`,
			`[{"command":["/srv/a"]},{"filesystem":["/data","/srv/a","/srv/b"]}]`, ""},
		{"filesystem without roots", `["filesystem"]`, "", `filesystem names the folders that it reaches: {"filesystem": ["/srv/acme"]}, on the command line --grant filesystem=/srv/acme`},
		{"command without roots", `[{"command": []}]`, "", `command names the folders that it reaches: {"command": ["/srv/acme"]}, on the command line --grant command=/srv/acme`},
		{"unknown", `["root"]`, "", `"root" is no grant; there are command, filesystem, operator_models, private_network, sqlite, stdio`},
		{"roots of another", `[{"stdio": ["/srv/acme"]}]`, "", "stdio takes no folders"},
		{"relative", `[{"filesystem": ["srv"]}]`, "", `filesystem: the folder "srv" must be an absolute path`},
		{"control character", `[{"filesystem": ["/srv/\u0000"]}]`, "", `filesystem: the folder "/srv/\x00" must be an absolute path`},
		{"reserved", `[{"filesystem": ["/srv/../etc"]}]`, "", "filesystem: the folder /srv/../etc lies in /etc or holds it, which no grant reaches: it is the system's"},
		{"too many", "[" + strings.Repeat(`"stdio",`, 40) + `"stdio"]`, "", "there are 41, 32 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var in grant.List
			if err := json.Unmarshal([]byte(c.in), &in); err != nil {
				t.Fatal(err)
			}
			out, err := in.Normalize(nil)
			if err != nil {
				if err.Error() != c.err {
					t.Errorf("got  %v\nwant %s", err, c.err)
				}
				return
			}
			raw, err := json.Marshal(out)
			if err != nil || string(raw) != c.out || c.err != "" {
				t.Errorf("%s %v, want %s %s", raw, err, c.out, c.err)
			}
		})
	}
}

// TestStored reads and writes a grant of earlier versions without roots: it is kept and gives nothing.
func TestStored(t *testing.T) {
	t.Parallel()
	const stored = `["filesystem","stdio",{"command":["/srv/acme"]}]`
	var list grant.List
	if err := json.Unmarshal([]byte(stored), &list); err != nil {
		t.Fatal(err)
	}
	if raw, err := json.Marshal(list); err != nil || string(raw) != stored {
		t.Errorf("%s %v", raw, err)
	}
	if list.Has(grant.Filesystem) || !list.IsRootless(grant.Filesystem) || !list.Has(grant.Stdio) || !list.Has(grant.Command) || list.IsRootless(grant.Command) {
		t.Errorf("%v", list)
	}
	for _, wrong := range []string{`1`, `{}`, `{"a":["/b"],"c":["/d"]}`, `{"filesystem":"/srv"}`, `{"filesystem":[1]}`, `[]`} {
		var g grant.Grant
		if err := json.Unmarshal([]byte(wrong), &g); err == nil {
			t.Errorf("%s is a grant: %v", wrong, g)
		}
	}
	if diff := cmp.Diff(grant.List{{Name: "filesystem", Roots: []string{"/b", "/a", "/c"}}, {Name: "stdio"}},
		grant.ParseList([]string{"filesystem=/b", "stdio", "filesystem=/a", "filesystem=/c"})); diff != "" {
		t.Error(diff)
	}
}

// TestCheckRoot checks that the folders of the system, shared folders and the server's own cannot be granted, in any
// spelling and through any link.
func TestCheckRoot(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data/backup", "data2", "apps/acme", "etc", "secrets"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name, to string) string {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	guard, err := grant.NewGuard(filepath.Join(dir, "data"), filepath.Join(dir, "etc", ".env"), link("alias", filepath.Join(dir, "secrets")))
	if err != nil {
		t.Fatal(err)
	}
	for _, denied := range []string{
		"/", "/.", "/etc", "/etc/ssh", "/usr/../etc", "/proc", "/proc/1/root", "/sys/kernel", "/dev/shm", "/usr/local", "/bin", "/sbin/x", "/lib", "/lib64/x",
		"/boot", "/root", "/root/x", "/run", "/run/docker", "/var/run/x", "/var", "/var/lib", "/var/spool", "/var/spool/cron", "/var/lib/postgresql", "/var/lib/redis/dump",
		"/var/lib/docker/volumes", "/var/log/acme", "/var/cache", "/tmp", "/home", "/var/tmp",
		dir, filepath.Join(dir, "data"), filepath.Join(dir, "data", "backup"), filepath.Join(dir, "data", "not there yet"), filepath.Join(dir, "etc"),
		filepath.Join(dir, "secrets"), link("to-etc", "/etc"), link("to-data", "data"), filepath.Join(link("to-root", "/"), "etc"), link("to-above", "."),
	} {
		if guard.CheckRoot(denied) == nil {
			t.Errorf("%s can be granted", denied)
		}
		if _, err := guard.ResolvePath([]string{denied}, filepath.Join(denied, "x")); err == nil {
			t.Errorf("what lies in %s can be used", denied)
		}
	}
	for _, allowed := range []string{"/srv", "/srv/acme", "/home/ana", "/tmp/acme", "/var/lib/acme", "/data", "/etcetera", filepath.Join(dir, "apps"), filepath.Join(dir, "data2")} {
		if err := guard.CheckRoot(allowed); err != nil {
			t.Error(err)
		}
	}
}

// TestResolvePath checks that a path leads below its root when it is used, even if folders in it were replaced.
func TestResolvePath(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, outside := filepath.Join(dir, "acme"), filepath.Join(dir, "globex")
	for _, folder := range []string{filepath.Join(root, "sub"), outside} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "file"), []byte(folder), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alias := filepath.Join(dir, "alias")
	for name, to := range map[string]string{alias: root, filepath.Join(root, "out"): outside, filepath.Join(root, "in"): "sub", filepath.Join(root, "leak"): filepath.Join(outside, "file")} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	guard, err := grant.NewGuard()
	if err != nil {
		t.Fatal(err)
	}
	for _, denied := range []string{"acme", outside, dir, filepath.Join(root, "..", "globex"), root + "2", "/etc/passwd"} {
		if _, err := guard.ResolvePath([]string{root}, denied); err == nil {
			t.Errorf("%s lies below %s", denied, root)
		}
	}
	if _, err := guard.ResolvePath(nil, root); err == nil {
		t.Error("without roots a path can be used")
	}
	for _, roots := range [][]string{{root}, {"/srv/none", alias}} {
		for _, allowed := range []string{root, filepath.Join(root, "sub"), filepath.Join(root, "in"), filepath.Join(roots[len(roots)-1], "sub")} {
			p, err := guard.ResolvePath(roots, allowed)
			if err != nil {
				t.Fatal(err)
			}
			if _, info, err := p.StatFolder(); err != nil || !info.IsDir() {
				t.Errorf("%s: %v", allowed, err)
			}
		}
		p, err := guard.ResolvePath(roots, filepath.Join(root, "out"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.StatFolder(); err == nil {
			t.Error("a link leads out")
		}
		for _, name := range []string{"leak", "out/file"} {
			p, err := guard.ResolvePath(roots, filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			if f, err := p.OpenFile(); err == nil {
				_ = f.Close()
				t.Errorf("%s is read", name)
			}
		}
		p, err = guard.ResolvePath(roots, filepath.Join(root, "in", "file"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.OpenFile()
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
}

// TestCheckDatabase checks that a SQLite file of an app must be a regular file with one name that is not the
// platform's.
func TestCheckDatabase(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, data, globex := filepath.Join(dir, "acme"), filepath.Join(dir, "data"), filepath.Join(dir, "globex")
	for _, folder := range []string{root, data, globex, filepath.Join(root, "dir.db")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	platform, other := filepath.Join(data, "stoa.db"), filepath.Join(globex, "own.db")
	for _, file := range []string{platform, platform + "-wal", filepath.Join(data, "stoa.secrets"), other, filepath.Join(root, "good.db"), filepath.Join(root, "moved.db"), filepath.Join(root, "beside.db")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"platform.db": platform, "secrets.db": filepath.Join(data, "stoa.secrets"), "beside.db-wal": platform + "-wal", "other.db": other} {
		if err := os.Link(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link.db": platform, "moved.db-journal": other, "near.db": "good.db", "sub": globex} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	guard, err := grant.NewGuard(data)
	if err != nil {
		t.Fatal(err)
	}
	check := func(g *grant.Guard, name string) error {
		p, err := g.ResolvePath([]string{root}, filepath.Join(root, name))
		if err != nil {
			return err
		}
		return g.CheckDatabase(p)
	}
	for _, allowed := range []string{"good.db", "new.db"} {
		if err := check(guard, allowed); err != nil {
			t.Errorf("%s: %v", allowed, err)
		}
	}
	for _, denied := range []string{"platform.db", "secrets.db", "beside.db", "other.db", "link.db", "moved.db", "near.db", "sub/own.db", "sub/new.db", "dir.db"} {
		if err := check(guard, denied); err == nil {
			t.Errorf("%s can be a database", denied)
		}
	}
	if err := os.Remove(platform); err != nil { // its last name still leads to the platform's file
		t.Fatal(err)
	}
	moved, err := grant.NewGuard(filepath.Join(root, "platform.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := moved.CheckDatabase(grant.RootedPath{Root: root, Path: "platform.db"}); err == nil {
		t.Error("the platform's file can be a database")
	}
}

// TestFindProgramOverlap compares the folders of one app's programs with those of another's SQLite files, as written
// and with links resolved.
func TestFindProgramOverlap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alias := filepath.Join(dir, "alias")
	if err := os.Mkdir(filepath.Join(dir, "acme"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("acme", alias); err != nil {
		t.Fatal(err)
	}
	files := grant.ParseList([]string{"sqlite", "filesystem=/srv/acme/db"})
	for _, c := range []struct {
		folder string
		other  grant.List
		want   bool
	}{
		{"/srv/acme/db", files, true},
		{"/srv/acme", files, true},
		{"/srv/acme/db/tools", files, true},
		{alias, grant.ParseList([]string{"sqlite", "filesystem=" + filepath.Join(dir, "acme", "db")}), true},
		{"/srv/acme/tools", files, false},
		{"/srv/acme/db2", files, false},
		{"/srv/acme/db", grant.ParseList([]string{"filesystem=/srv/acme/db"}), false},
		{"/srv/acme/db", grant.ParseList([]string{"sqlite"}), false},
	} {
		if _, _, got := grant.ParseList([]string{"command=" + c.folder}).FindProgramOverlap(c.other); got != c.want {
			t.Errorf("%s and %v: %t, want %t", c.folder, c.other, got, c.want)
		}
	}
}

func TestIsOwnFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, other, link := filepath.Join(dir, "stoa.secrets"), filepath.Join(dir, "notes"), filepath.Join(dir, "link")
	for _, file := range []string{own, other} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(own, link); err != nil {
		t.Fatal(err)
	}
	guard, err := grant.NewGuard()
	if err == nil {
		guard, err = guard.WithOwnFiles(own, filepath.Join(dir, "missing"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{own: true, link: true, other: false, dir: false} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := guard.IsOwnFile(info); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
		if (*grant.Guard)(nil).IsOwnFile(info) {
			t.Errorf("%s is the server's without a guard", path)
		}
	}
}
