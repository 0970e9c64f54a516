package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// tokenizerModule has the vocabularies of models as map literals, which take seven times what they take compressed.
const tokenizerModule = "github.com/tiktoken-go/tokenizer"

// tokenizerEncodings are the vocabularies that Stoa links: the name of the file, and of the variable.
var tokenizerEncodings = []tokenizerEncoding{{"o200k_base", "o200kBase"}, {"cl100k_base", "cl100kBase"}}

type tokenizerEncoding struct{ file, variable string }

// readerSource is the function that reads a compressed vocabulary. It is added to the module.
//
//go:embed reader.go
var readerSource string

var entryPattern = regexp.MustCompile(`(?m)^\t\t("(?:[^"\\]|\\.)*"):\s+(\d+),$`)

// compressVocabulary replaces the Go file of a vocabulary in dir by a compressed file and the code that reads it.
func compressVocabulary(dir string, e tokenizerEncoding) error {
	source := filepath.Join(dir, e.file+"_vocab.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	entries := entryPattern.FindAllSubmatch(text, -1)
	if lines := bytes.Count(text, []byte(",\n")); lines != len(entries) || len(entries) < 100_000 || !bytes.Contains(text, []byte("\t"+e.variable+"Vocab = vocab{\n")) {
		return fmt.Errorf("%s is not the list of a vocabulary: %d of %d entries were understood", source, len(entries), lines)
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return err
	}
	before := 0
	for _, m := range entries {
		token, err := strconv.Unquote(string(m[1]))
		if err != nil {
			return fmt.Errorf("%s: %s: %w", source, m[1], err)
		}
		id, err := strconv.Atoi(string(m[2]))
		if err != nil || id < before {
			return fmt.Errorf("%s: the ids are not in order at %s", source, m[0])
		}
		// What lies between the ids, the length, and the text.
		entry := binary.AppendUvarint(nil, uint64(id-before)) //nolint:gosec // not negative
		entry = binary.AppendUvarint(entry, uint64(len(token)))
		if _, err := w.Write(append(entry, token...)); err != nil {
			return err
		}
		before = id + 1
	}
	if err := w.Close(); err != nil {
		return err
	}
	replacement := strings.NewReplacer("VARIABLE", e.variable, "FILE", e.file, "COUNT", strconv.Itoa(len(entries))).Replace(`package codec

import (
	_ "embed"
	"sync"
)

var (
	VARIABLEVocab     vocab
	VARIABLEVocabOnce sync.Once
	//go:embed FILE_vocab.gz
	VARIABLEVocabFile string
)

func VARIABLEVocabInit() { VARIABLEVocab = readVocabulary(VARIABLEVocabFile, COUNT) }
`)
	for name, content := range map[string]string{
		e.file + "_vocab.gz": compressed.String(), e.file + "_vocab.go": replacement,
		"vocab_reader.go": strings.Replace(readerSource, "package main", "package codec", 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
