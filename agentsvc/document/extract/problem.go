package extract

import (
	"fmt"

	"stoa/agentsvc"
)

// Problem is why a file cannot be read. An error of [Reader.Read] about a file is an [*agentsvc.Error] whose message is
// for the uploader and whose cause is a Problem, so that errors.Is(err, extract.Encrypted) finds it. Any other error is
// about the server, and another attempt may succeed.
type Problem string

// The problems. TooSlow and Crashed may come from the state of the machine instead of the file; the others stay until
// the file changes.
const (
	Encrypted   Problem = "encrypted"   // needs a password
	Empty       Problem = "empty"       // has no text
	Scanned     Problem = "scanned"     // has pages of images without text
	Unsupported Problem = "unsupported" // of a format that is not read
	TooLarge    Problem = "too large"   // exceeds a limit of size, text, pages, entries or compression
	TooComplex  Problem = "too complex" // needs more memory than a reader has
	TooSlow     Problem = "too slow"    // needs more time than a reader has
	Damaged     Problem = "damaged"     // violates its format
	Crashed     Problem = "crashed"     // the reader ended without an answer
)

// problems are all problems, to recognise one that a helper names.
var problems = []Problem{Encrypted, Empty, Scanned, Unsupported, TooLarge, TooComplex, TooSlow, Damaged, Crashed}

// Error returns the name of the problem.
func (p Problem) Error() string { return string(p) }

// newProblem returns the error of a file with a message for its uploader.
func newProblem(p Problem, format string, args ...any) *agentsvc.Error {
	code := agentsvc.CodeInvalid
	if p == TooLarge {
		code = agentsvc.CodeTooLarge
	}
	return &agentsvc.Error{Code: code, Message: fmt.Sprintf(format, args...), Err: p}
}

// newDamaged returns the error of a file that violates its format. what completes "the file is damaged: ".
func newDamaged(what string) *agentsvc.Error {
	return newProblem(Damaged, "the file is damaged: %s; save it again with the program that made it", what)
}

// newFileTooLarge returns the error of a file above [MaxFileBytes].
func newFileTooLarge() *agentsvc.Error {
	return newProblem(TooLarge, "the file is larger than %d MiB: split it", MaxFileBytes>>20)
}
