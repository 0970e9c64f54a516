// Program slim prepares a smaller build of Stoa, without a feature less. It copies a few modules to bin/.slim, changes a few
// lines of them, and prints the flags with which the go command builds from the copies:
//
//	go build $(go run ./deploy/package/slim) ./cmd/stoa
//
// With the name of a list of modules (CycloneDX) of such a build as its argument it writes the modules into the list which
// the copies are of.
//
// Go's linker removes methods that nothing calls, unless a function that is linked asks for methods by names that are
// known only at run time: then it keeps every exported method of every type. Four libraries have such functions, for
// features that Stoa does not use. docs/operations/size.md has what each change saves.
//
// Each change names the text that it replaces. If a new version of a module has another text, slim fails and says so; then
// adapt the change, or remove it. A build without these flags works as well.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// outDir is the folder of the copies, relative to the root of the repository. Its name is in the binary, so that it must
// be the same in every folder for a build to be reproducible.
const outDir = "bin/.slim"

// change replaces a piece of text, which a file has exactly once.
type change struct{ old, replacement string }

// changedFile is a file of a module or, where module is "", of Go's standard library.
type changedFile struct {
	module, path string
	changes      []change
	addition     string // at the end of the file
}

func main() {
	var flags []string
	var err error
	if len(os.Args) > 1 {
		err = nameModules(".", os.Args[1])
	} else if flags, err = prepare("."); err == nil {
		fmt.Println(strings.Join(flags, " "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "slim:", err)
		os.Exit(1)
	}
}

// prepare writes the copies below root and returns the flags of the go command.
func prepare(root string) (flags []string, err error) {
	out := filepath.Join(root, outDir)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil { //nolint:gosec // as the folder bin of make build
		return nil, err
	}
	// Two builds at a time must not see half a copy: the folder is replaced as a whole.
	work, err := os.MkdirTemp(filepath.Dir(out), ".slim.")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()

	copies := map[string]string{} // the folder of each copied module, below work
	copyOnce := func(module string) (string, error) {
		if copies[module] != "" {
			return copies[module], nil
		}
		dir := filepath.Join(work, nameFolder(module))
		copies[module] = dir
		return dir, copyModule(root, module, dir)
	}
	goRoot, overlays, err := findGoRoot()
	if err != nil {
		return nil, err
	}
	replaced := map[string]string{}
	for _, f := range changedFiles {
		from, to := filepath.Join(goRoot, f.path), filepath.Join(work, filepath.Base(f.path))
		switch {
		case f.module != "":
			dir, err := copyOnce(f.module)
			if err != nil {
				return nil, err
			}
			from, to = filepath.Join(dir, f.path), filepath.Join(dir, f.path)
		case !overlays:
			fmt.Fprintf(os.Stderr, "ATTENTION: this Go lies in the module cache, where %s cannot be replaced: the binary keeps every exported method\n", f.path)
			continue
		default:
			replaced[from] = filepath.Join(outDir, filepath.Base(f.path))
		}
		if err := f.write(from, to); err != nil {
			return nil, err
		}
	}
	dir, err := copyOnce(tokenizerModule)
	if err != nil {
		return nil, err
	}
	for _, encoding := range tokenizerEncodings {
		if err := compressVocabulary(filepath.Join(dir, "codec"), encoding); err != nil {
			return nil, err
		}
	}
	if err := writeModFile(root, work, copies); err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err == nil {
		err = os.WriteFile(filepath.Join(work, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	return []string{"-modfile=" + outDir + "/go.mod", "-overlay=" + outDir + "/overlay.json"}, os.Rename(work, out)
}

// write writes the changed file.
func (f changedFile) write(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	for _, c := range f.changes {
		if n := bytes.Count(text, []byte(c.old)); n != 1 {
			return fmt.Errorf("%s has this text %d times instead of once; adapt changedFiles in deploy/package/slim/changes.go:\n%s", from, n, c.old)
		}
		text = bytes.Replace(text, []byte(c.old), []byte(c.replacement), 1)
	}
	return os.WriteFile(to, append(text, f.addition...), 0o600)
}

// nameFolder returns the name of the folder with the copy of a module.
func nameFolder(module string) string { return strings.ReplaceAll(module, "/", "_") }

// moduleInfo is what the go command says of a module.
type moduleInfo struct{ Dir, Version string }

// findModule returns the folder, in the module cache, and the version of a module of go.mod.
func findModule(root, module string) (found moduleInfo, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	written, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(written, &found)
	}
	if err != nil {
		return found, fmt.Errorf("find module %s: %w", module, err)
	}
	return found, nil
}

// copyModule copies a module, in the version of go.mod, from the module cache to a folder.
func copyModule(root, module, to string) error {
	found, err := findModule(root, module)
	if err != nil {
		return err
	}
	// Files of the module cache are read-only; those of the copy are changed.
	return filepath.WalkDir(found.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(found.Dir, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755) //nolint:gosec // as the module cache
		}
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}

// findGoRoot returns the folder of the Go distribution, and whether the go command permits to replace files in it, which
// is not so for a toolchain that it downloaded as a module.
func findGoRoot() (dir string, overlays bool, err error) {
	written, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return "", false, err
	}
	lines := strings.Split(strings.TrimSpace(string(written)), "\n")
	if len(lines) != 2 {
		return "", false, errors.New("go env does not print GOROOT and GOMODCACHE")
	}
	return lines[0], !strings.HasPrefix(lines[0], lines[1]+string(filepath.Separator)), nil
}

// writeModFile writes go.mod with the copies in place of their modules, and go.sum.
func writeModFile(root, work string, copies map[string]string) error {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return err
	}
	args := []string{"mod", "edit"}
	for _, module := range slices.Sorted(maps.Keys(copies)) {
		dir := copies[module]
		args = append(args, "-replace="+module+"=./"+outDir+"/"+filepath.Base(dir))
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s has no go.mod: it cannot be replaced by a folder", module)
		}
	}
	file := filepath.Join(work, "go.mod")
	if err := errors.Join(os.WriteFile(file, mod, 0o600), os.WriteFile(filepath.Join(work, "go.sum"), sum, 0o600)); err != nil {
		return err
	}
	written, err := exec.Command("go", append(args, file)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("write %s: %w: %s", file, err, written)
	}
	return nil
}
