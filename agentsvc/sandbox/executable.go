package sandbox

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FindProgram returns the path of a program: name itself if it is absolute, else the first one on [SearchPath], "" if
// there is none. A relative path is not a program name.
func FindProgram(name string) string {
	if filepath.IsAbs(name) {
		if isProgram(name) {
			return filepath.Clean(name)
		}
		return ""
	}
	if name == "" || strings.ContainsRune(name, filepath.Separator) {
		return ""
	}
	for _, dir := range filepath.SplitList(SearchPath) {
		if file := filepath.Join(dir, name); isProgram(file) {
			return file
		}
	}
	return ""
}

// isProgram reports whether file is a regular file that someone may execute.
func isProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// findLoaders returns files and everything that the kernel must execute to run them: the dynamic linker of an ELF
// binary, the interpreter of a script, and theirs in turn. The given files are always included; a file that only
// another file names must satisfy canLoad. Paths are returned without symbolic links; missing files are left out.
func findLoaders(files []string, canLoad func(file string) bool) []string {
	given := len(files) // how many of the first entries of the queue were given
	var all []string
	for len(files) > 0 {
		file, err := filepath.EvalSymlinks(files[0])
		files = files[1:]
		given--
		if err != nil || slices.Contains(all, file) || given < 0 && !canLoad(file) {
			continue
		}
		all = append(all, file)
		files = append(files, linkedPrograms(file)...)
	}
	return all
}

// linkedPrograms returns the programs that file names as its dynamic linker or interpreter, nil if it names none or
// cannot be read.
func linkedPrograms(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	// The kernel reads 256 bytes of a script's first line (BINPRM_BUF_SIZE).
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadBytes('\n')
	if script, ok := bytes.CutPrefix(line, []byte("#!")); ok {
		return parseInterpreter(strings.Fields(string(script)))
	}
	binary, err := elf.NewFile(f)
	if err != nil {
		return nil
	}
	for _, p := range binary.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err == nil {
			return []string{string(bytes.TrimRight(name, "\x00"))}
		}
	}
	return nil
}

// parseInterpreter returns the programs that the words of a script's first line name: the interpreter, and if that is
// env also the program that env searches for.
func parseInterpreter(words []string) []string {
	if len(words) == 0 || !filepath.IsAbs(words[0]) {
		return nil
	}
	files := words[:1:1]
	if filepath.Base(words[0]) == "env" {
		for _, word := range words[1:] {
			if !strings.HasPrefix(word, "-") {
				return append(files, FindProgram(word))
			}
		}
	}
	return files
}
