package runtime

import (
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/config/document"
)

// problemList is the problems found in a configuration so far.
type problemList []document.Problem

// errDependencyInvalid reports that something cannot be built because a part of it has a problem, which is already in
// the list.
var errDependencyInvalid = errors.New("a part of it is invalid")

// addProblem adds err, or each of the errors that it joins, as a problem at path. The field of an
// [agentsvc.CodeInvalid] is appended to path. nil and errDependencyInvalid add nothing.
func (l *problemList) addProblem(path string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			l.addProblem(path, err)
		}
		return
	}
	var invalid *agentsvc.Error
	switch {
	case err == nil, errors.Is(err, errDependencyInvalid):
	case errors.As(err, &invalid) && invalid.Field != "":
		*l = append(*l, document.Problem{Path: path + "." + invalid.Field, Message: invalid.Message})
	default:
		*l = append(*l, document.Problem{Path: path, Message: err.Error()})
	}
}

// asError returns the problems as a [document.Error], nil if there are none.
func (l *problemList) asError() error {
	if len(*l) == 0 {
		return nil
	}
	return &document.Error{Problems: *l}
}
