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

// FindProgram returns the path of a program: name itself if it is absolute, else the first of that name on [SearchPath]. It is "" if
// there is none.
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

func isProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// findLoaders returns files with what the kernel must execute to run them: the dynamic linker of a binary, the interpreter
// of a script, as far as may says so. All are given without symbolic links.
func findLoaders(files []string, canLoad func(file string) bool) []string {
	given := len(files)
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

// linkedPrograms returns the programs that file names as its linker or interpreter.
func linkedPrograms(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
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

// parseInterpreter returns what a script's first line names: the program, and behind env the one that env looks for.
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
