package directory_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/document/source/directory"
	"stoa/tenancy/grant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeFiles writes files below folder, each with its path as content.
func writeFiles(t *testing.T, folder string, names ...string) {
	t.Helper()
	for _, name := range names {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func newSource(t *testing.T, opts directory.Options) *directory.Source {
	t.Helper()
	s, err := directory.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// list returns the documents of a complete listing.
func list(t *testing.T, s source.Source) []source.Item {
	t.Helper()
	var items []source.Item
	for item, err := range s.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

func listError(t *testing.T, s source.Source) string {
	t.Helper()
	for _, err := range s.List(t.Context()) {
		if err != nil {
			return err.Error()
		}
	}
	return ""
}

// open returns the content of a document, or the error of opening it after "error: ".
func open(t *testing.T, item source.Item) string {
	t.Helper()
	f, err := item.Open(t.Context())
	if err != nil {
		return "error: " + err.Error()
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(f)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(content)
}

func ids(items []source.Item) (out []string) {
	for _, item := range items {
		out = append(out, item.ID)
	}
	return out
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFiles(t, folder, "a.md", "a/b.md", "a-b.md", "a/c.txt", "a0.md", ".hidden.md", ".github/x.md", ".git/config", "a/.git/config", "drafts/d.md", "z/drafts/e.md")
	for _, c := range []struct {
		name string
		cfg  config.Source
		want []string
	}{
		{"all, in byte order", config.Source{}, []string{"a-b.md", "a.md", "a/b.md", "a/c.txt", "a0.md", "drafts/d.md", "z/drafts/e.md"}},
		{"any folder", config.Source{Include: []string{"*.txt"}}, []string{"a/c.txt"}},
		{"one folder", config.Source{Include: []string{"a/*.md"}}, []string{"a/b.md"}},
		{"what a folder holds", config.Source{Include: []string{"a/"}}, []string{"a/b.md", "a/c.txt"}},
		{"alternatives", config.Source{Include: []string{"**/{b,c}.{md,txt}"}}, []string{"a/b.md", "a/c.txt"}},
		{"excluded folder", config.Source{Exclude: []string{"drafts", "a0.md"}}, []string{"a-b.md", "a.md", "a/b.md", "a/c.txt"}},
		{"excluded path", config.Source{Exclude: []string{"drafts/**"}, Include: []string{"**/[de].md"}}, []string{"z/drafts/e.md"}},
		{"hidden by name", config.Source{Include: []string{".github/**", "**/.git/**"}}, []string{".github/x.md"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Path = folder
			got := ids(list(t, newSource(t, directory.Options{Config: &c.cfg})))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if !slices.IsSorted(got) {
				t.Errorf("%q is not in byte order", got)
			}
		})
	}
	reads := func(name string) bool { return strings.HasSuffix(name, ".txt") }
	if diff := cmp.Diff([]string{"a/c.txt"}, ids(list(t, newSource(t, directory.Options{Config: &config.Source{Path: folder}, Reads: reads})))); diff != "" {
		t.Error(diff)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFiles(t, folder, "hr/a.md", "hr/pub/b.md", "c.md")
	cfg := &config.Source{Path: folder, Access: []*config.AccessRule{
		{Path: "hr/pub/**"}, {Path: "hr", Roles: []string{"hr"}, Subjects: []string{"zoe", "ann"}}, {Path: "**", Roles: []string{"staff"}},
	}}
	got := map[string]document.Access{}
	versions := map[string]string{}
	for _, item := range list(t, newSource(t, directory.Options{Config: cfg})) {
		got[item.ID], versions[item.ID] = item.Access, item.Version
	}
	want := map[string]document.Access{"hr/a.md": {Subjects: []string{"ann", "zoe"}, Roles: []string{"hr"}}, "hr/pub/b.md": {}, "c.md": {Roles: []string{"staff"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	cfg.Access[2].Roles = []string{"others"}
	for _, item := range list(t, newSource(t, directory.Options{Config: cfg})) {
		if changed := item.Version != versions[item.ID]; changed != (item.ID == "c.md") {
			t.Errorf("%s: version changed %v", item.ID, changed)
		}
	}
}

// TestHostileFiles checks files that fail by themselves or are left out; the listing is complete all the same.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	folder, outside := t.TempDir(), t.TempDir()
	writeFiles(t, outside, "secret.md")
	writeFiles(t, folder, "good.md", "sub/in.md", "bad\xffname.md", "bad\xfefolder/x.md")
	for link, target := range map[string]string{
		"out.md": filepath.Join(outside, "secret.md"), "up.md": "../" + filepath.Base(outside) + "/secret.md", "inside.md": "good.md",
		"loop.md": "loop.md", "folder.md": "sub", "outfolder.md": outside, "gone.md": "nothing",
	} {
		if err := os.Symlink(target, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "pipe.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a\nb.md", "\u202edm.md"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Sparse: 5 GB that use no space.
	huge, err := os.Create(filepath.Join(folder, "huge.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(huge.Truncate(5_000_000_000), huge.Close()); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, item := range list(t, newSource(t, directory.Options{Config: &config.Source{Path: folder}})) {
		got[item.ID] = open(t, item)
		if item.Version == "" {
			t.Errorf("%s has no version", item.ID)
		}
	}
	const unreachable = "error: cannot be reached in the folder, e.g. because it is a link that leads out of it"
	const unprintable = "error: the name of this file or folder has a control character, a line break or a mark of the direction of writing; rename it"
	const noUTF8 = "error: the name of this file or folder is no UTF-8; rename it"
	want := map[string]string{
		"good.md": "good.md", "sub/in.md": "sub/in.md", "inside.md": "good.md", "out.md": unreachable, "up.md": unreachable, "outfolder.md": unreachable,
		"loop.md":                          "error: is a link that leads to itself",
		"huge.md":                          "error: the file has 5000000000 bytes, more than max_file_size (10485760); raise it or exclude the file",
		source.ShortenID("bad\xffname.md"): noUTF8, source.ShortenID("bad\xfefolder"): noUTF8,
		source.ShortenID("a\nb.md"): unprintable, source.ShortenID("\u202edm.md"): unprintable,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestChangedBeforeOpen checks files that are not what was listed any more.
func TestChangedBeforeOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(file string) error
		want   string
	}{
		"removed": {os.Remove, "error: the file disappeared while it was read"},
		"grown": {func(file string) error { return os.WriteFile(file, make([]byte, 101), 0o644) },
			"error: the file has 101 bytes, more than max_file_size (100); raise it or exclude the file"},
		"pipe": {func(file string) error { return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o644)) }, "error: is no regular file"},
		"link": {func(file string) error { return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)) },
			"error: cannot be reached in the folder, e.g. because it is a link that leads out of it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			writeFiles(t, folder, "a.md")
			items := list(t, newSource(t, directory.Options{Config: &config.Source{Path: folder, MaxFileSize: 100}}))
			if err := c.change(filepath.Join(folder, "a.md")); err != nil {
				t.Fatal(err)
			}
			if got := open(t, items[0]); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestGrowsWhileRead checks that a file that is longer than allowed only after it was opened fails.
func TestGrowsWhileRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFiles(t, folder, "a.md")
	items := list(t, newSource(t, directory.Options{Config: &config.Source{Path: folder, MaxFileSize: 100}}))
	f, err := items[0].Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := os.WriteFile(filepath.Join(folder, "a.md"), make([]byte, 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, f); err == nil || !source.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

// TestVersions checks which changes of a file are a new version.
func TestVersions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "a.md")
	writeFiles(t, folder, "a.md", "b.md")
	s := newSource(t, directory.Options{Config: &config.Source{Path: folder}})
	version := func() string { return list(t, s)[0].Version }
	first := version()
	if again := version(); again != first {
		t.Error("an unchanged file has a new version")
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	// The same size and time in another file, as a tool that restores times leaves it.
	if err := errors.Join(os.WriteFile(file+".new", []byte("b.md"), 0o644), os.Chtimes(file+".new", info.ModTime(), info.ModTime()), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	second := version()
	if err := os.Chtimes(file, info.ModTime(), info.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	if third := version(); second == first || third == second {
		t.Errorf("versions %s, %s, %s", first, second, third)
	}
}

// TestVanishedFolder checks that a folder that is gone, before or during the listing, is an error and no empty listing.
func TestVanishedFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "docs")
	s := newSource(t, directory.Options{Config: &config.Source{Path: folder}})
	if got := listError(t, s); got != "the folder of the source does not exist; its documents stay as they are" {
		t.Errorf("got %q", got)
	}
	writeFiles(t, folder, "a.md", "b/c.md", "d/e.md")
	for removed, want := range map[string]string{
		"d": "the folder d disappeared while it was listed; nothing is deleted for it",
		"b": "the folder b disappeared while it was listed; nothing is deleted for it",
		".": "the folder b disappeared while it was listed; nothing is deleted for it",
	} {
		writeFiles(t, folder, "a.md", "b/c.md", "d/e.md")
		var last error
		for item, err := range s.List(t.Context()) {
			if last = err; item.ID == "a.md" {
				if err := os.RemoveAll(filepath.Join(folder, removed)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if last == nil || last.Error() != want {
			t.Errorf("%s: %v", removed, last)
		}
	}
}

// TestUnreadable checks permissions. Root may read everything, so that the test gives its thread another user then.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFiles(t, folder, "a.md", "b/c.md")
	if err := os.Chmod(filepath.Join(folder, "a.md"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { //nolint:gosec // a folder of the test
			t.Fatal(err)
		}
		runtime.LockOSThread() // never unlocked: the thread ends with the test
		const otherUser = 65534
		if err := syscall.Setfsuid(otherUser); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	s := newSource(t, directory.Options{Config: &config.Source{Path: folder}})
	if got := open(t, list(t, s)[0]); got != "error: this server may not read the file" {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"b", "."} {
		if os.Getuid() == 0 {
			_ = syscall.Setfsuid(0)
		}
		if err := os.Chmod(filepath.Join(folder, name), 0); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			_ = syscall.Setfsuid(65534)
		}
		want := "this server may not read the folder b; allow it, or leave the folder out by exclude"
		if name == "." {
			want = "this server may not read the folder of the source; its documents stay as they are"
		}
		if got := listError(t, s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if os.Getuid() == 0 {
		_ = syscall.Setfsuid(0)
	}
	_ = os.Chmod(folder, 0o755)                     //nolint:gosec // so that it can be removed
	_ = os.Chmod(filepath.Join(folder, "b"), 0o755) //nolint:gosec // so that it can be removed
}

// TestGrantedRoot checks that a tenant's folder that became a link out of the granted root is not listed.
func TestGrantedRoot(t *testing.T) {
	t.Parallel()
	granted, outside := t.TempDir(), t.TempDir()
	writeFiles(t, granted, "docs/a.md")
	writeFiles(t, outside, "secret.md")
	location := grant.RootedPath{Root: granted, Path: "docs"}
	s := newSource(t, directory.Options{Config: &config.Source{Path: location.FullPath()}, OpenRoot: location.OpenFolder})
	if diff := cmp.Diff([]string{"a.md"}, ids(list(t, s))); diff != "" {
		t.Error(diff)
	}
	if err := errors.Join(os.RemoveAll(location.FullPath()), os.Symlink(outside, location.FullPath())); err != nil {
		t.Fatal(err)
	}
	if got := listError(t, s); got != "the folder of the source cannot be opened; its documents stay as they are" {
		t.Errorf("got %q", got)
	}
}

func TestListStops(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFiles(t, folder, "a.md", "b.md")
	s := newSource(t, directory.Options{Config: &config.Source{Path: folder}, Watch: true})
	for range s.List(t.Context()) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.List(ctx) {
		if err == nil {
			t.Error("a cancelled listing goes on")
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFiles(t, folder, "a.md", "sub/b.md")
	if err := newSource(t, directory.Options{Config: &config.Source{Path: folder}}).Wait(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without watch: %v", err)
	}
	s := newSource(t, directory.Options{Config: &config.Source{Path: folder}, Watch: true})
	for name, change := range map[string]func(){
		"changed file":            func() { writeFiles(t, folder, "sub/b.md") },
		"new file":                func() { writeFiles(t, folder, "sub/c.md") },
		"new folder":              func() { writeFiles(t, folder, "new/d.md") },
		"folder of the same name": func() { _ = os.RemoveAll(filepath.Join(folder, "sub")); writeFiles(t, folder, "sub/e.md") },
	} {
		list(t, s)
		change()
		if err := waitFor(t, s, time.Minute); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The folder that was removed and made again is watched after the next listing, too.
	list(t, s)
	writeFiles(t, folder, "sub/f.md")
	if err := waitFor(t, s, time.Minute); err != nil {
		t.Error(err)
	}
	list(t, s)
	if err := waitFor(t, s, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a change: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Wait(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	list(t, s) // still lists
}

func waitFor(t *testing.T, s source.Source, longest time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	return s.Wait(ctx)
}

// TestOwnFiles lists a folder with a file of the server itself, which also takes the place of another one.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, "a.txt", "stoa.secrets", "z.txt")
	own := filepath.Join(dir, "stoa.secrets")
	s := newSource(t, directory.Options{Config: &config.Source{Path: dir}, IsOwnFile: func(info fs.FileInfo) bool {
		secret, err := os.Stat(own)
		return err == nil && os.SameFile(secret, info)
	}})
	items := list(t, s)
	var ids []string
	for _, item := range items {
		ids = append(ids, item.ID)
	}
	if diff := cmp.Diff([]string{"a.txt", "z.txt"}, ids); diff != "" {
		t.Fatal(diff)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "z.txt")), os.Link(own, filepath.Join(dir, "z.txt"))); err != nil {
		t.Fatal(err)
	}
	if f, err := items[1].Open(t.Context()); err == nil || !strings.Contains(err.Error(), "server's own") {
		t.Errorf("opened %v (%v)", f, err)
	}
}
