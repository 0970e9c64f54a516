package extract

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
)

// HelperVariable is the environment variable that makes a process a helper; see [RunHelper].
const HelperVariable = "STOA_EXTRACT"

// helperName is the first argument of a helper, as lists of processes show it.
const helperName = "stoa-extract"

// Bounds of a helper's process.
const (
	maxHeapBytes  = 512 << 20 // of the heap; above it the helper ends with exitMemory
	maxDataBytes  = 768 << 20 // of private memory, where the system can bound it
	maxStackBytes = 64 << 20  // of a goroutine, against deep recursion of a parser
	heapInterval  = 20 * time.Millisecond
)

// exitMemory is the exit code of a helper that needs more memory than it may have.
const exitMemory = 91

// request is the first line that a helper reads. The bytes of the file follow it, up to the end of the input.
type request struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
}

// reply is one line that a helper writes: a section, or the end, or a problem. Exactly one of the three is set.
type reply struct {
	Section *document.Section `json:"section,omitempty"`
	End     *replyEnd         `json:"end,omitempty"`
	Problem *replyProblem     `json:"problem,omitempty"`
}

// replyEnd is what is known of a document at its end. Its presence says that no section is missing.
type replyEnd struct {
	Title     string `json:"title"`
	MediaType string `json:"media_type"`
}

// replyProblem is why the file cannot be read.
type replyProblem struct {
	Problem Problem `json:"problem"`
	Message string  `json:"message"`
}

// RunHelper turns a process that was started as the helper into one: it reads one file from standard input, writes its
// text to standard output, and exits. If text, the value of [HelperVariable], is empty, it returns at once. A main that
// calls it must do so before anything else but [sandbox.RunHelper].
func RunHelper(text string) {
	if text == "" {
		return
	}
	limitProcess()
	code := 0
	if serveFile(os.Stdin, os.Stdout) != nil {
		code = 1
	}
	os.Exit(code)
}

// limitProcess bounds the memory of this process, and where the system can, also what files it may write: none.
func limitProcess() {
	runtime.GOMAXPROCS(1) // a helper must not have more processors than one document's share
	debug.SetMaxStack(maxStackBytes)
	debug.SetMemoryLimit(maxHeapBytes) // collects garbage more often when it is near
	limitResources()
	go watchHeap()
}

// watchHeap ends the process when its heap is too large. It is the only bound of memory on systems without resource
// limits, and the one that names the reason on the others.
func watchHeap() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		if metrics.Read(sample); sample[0].Value.Uint64() > maxHeapBytes {
			os.Exit(exitMemory)
		}
		time.Sleep(heapInterval)
	}
}

// serveFile reads one request and writes its reply. The error is that of writing or of a wrong request.
func serveFile(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	line, data, ok := bytes.Cut(data, []byte("\n"))
	var q request
	if !ok {
		return errors.New("the request has no end")
	}
	if err := json.Unmarshal(line, &q); err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 64<<10)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	content, err := readContent(q.Name, q.MediaType, data, defaultLimits)
	if err != nil {
		err = encoder.Encode(reply{Problem: describeProblem(err)})
	} else {
		err = writeContent(encoder, content)
	}
	return errors.Join(err, w.Flush())
}

// writeContent writes sections and end of a document.
func writeContent(encoder *json.Encoder, content document.Content) error {
	for i := range content.Sections {
		if err := encoder.Encode(reply{Section: &content.Sections[i]}); err != nil {
			return err
		}
	}
	return encoder.Encode(reply{End: &replyEnd{Title: content.Title, MediaType: content.MediaType}})
}

// describeProblem returns an error of readContent for the reply.
func describeProblem(err error) *replyProblem {
	p := &replyProblem{Problem: Damaged, Message: err.Error()}
	var known *agentsvc.Error
	if errors.As(err, &known) {
		_ = errors.As(known.Err, &p.Problem)
	}
	return p
}
