package temporary_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"stoa/agentsvc/temporary"
)

// otherVariable makes this test's program a process that makes a folder and a file, and waits until it is killed.
const otherVariable = "STOA_TEST_TEMPORARY"

func TestMain(m *testing.M) {
	if folder := os.Getenv(otherVariable); folder != "" {
		f, err := temporary.MakeFolder("test")
		if err == nil {
			err = os.WriteFile(filepath.Join(f.Path, "content"), []byte("x"), 0o600)
		}
		var file *os.File
		if err == nil {
			file, err = temporary.CreateFile(folder, ".part-")
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(f.Path)
		fmt.Println(file.Name())
		_, _ = os.Stdin.Read(make([]byte, 1)) // never ends by itself
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// otherProcess is a process that has a folder and a file.
type otherProcess struct {
	cmd          *exec.Cmd
	folder, file string
}

func startOther(t *testing.T, folder string) otherProcess {
	t.Helper()
	o := otherProcess{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	o.cmd.Env = append(os.Environ(), otherVariable+"="+folder)
	if _, err := o.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.kill)
	lines := bufio.NewScanner(stdout)
	for _, line := range []*string{&o.folder, &o.file} {
		lines.Scan()
		*line = lines.Text()
		if _, err := os.Stat(*line); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// kill ends the process as kill -9 does.
func (o otherProcess) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

func listFolder(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestKilledProcess checks that the folders and files of a process that was killed are removed, and those of one that lives,
// of others, and links are not.
func TestKilledProcess(t *testing.T) {
	temp, folder := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	foreign := filepath.Join(temp, "stoa-other")
	link := filepath.Join(temp, "stoa-tmp-link")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(foreign, link); err != nil {
		t.Fatal(err)
	}
	killed, alive := startOther(t, folder), startOther(t, folder)
	if n, err := temporary.RemoveFolders(); n != 0 || err != nil {
		t.Errorf("%d folders of living processes were removed (%v)", n, err)
	}
	killed.kill()
	if n, err := temporary.RemoveFolders(); n != 1 || err != nil {
		t.Errorf("%d folders were removed, want that of the killed process (%v)", n, err)
	}
	want := []string{"stoa-other", filepath.Base(alive.folder), "stoa-tmp-link"}
	slices.Sort(want)
	if got := listFolder(t, temp); !slices.Equal(got, want) {
		t.Errorf("the folders are %v, want %v", got, want)
	}
	f, err := temporary.CreateFile(folder, ".part-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want = []string{filepath.Base(alive.file), filepath.Base(f.Name())}
	slices.Sort(want)
	if got := listFolder(t, folder); !slices.Equal(got, want) {
		t.Errorf("the files are %v, want %v without that of the killed process", got, want)
	}
}

// TestRemoveWhileMade makes folders and files while others are swept: none that is in use is removed.
func TestRemoveWhileMade(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var makers, sweepers sync.WaitGroup
	done := make(chan struct{})
	sweepers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := temporary.RemoveFolders(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		makers.Go(func() {
			for range 200 {
				f, err := temporary.MakeFolder("test")
				if err != nil {
					t.Error(err)
					return
				}
				file, err := temporary.CreateFile(f.Path, ".part-")
				if err != nil {
					t.Errorf("a folder in use was removed: %v", err)
					return
				}
				if err := os.Rename(file.Name(), filepath.Join(f.Path, "whole")); err != nil {
					t.Error(err)
				}
				_ = file.Close()
				if err := f.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	makers.Wait()
	close(done)
	sweepers.Wait()
	if _, err := temporary.RemoveFolders(); err != nil {
		t.Error(err)
	}
	if left := listFolder(t, temp); len(left) > 0 {
		t.Errorf("folders were left: %s", strings.Join(left, " "))
	}
}
