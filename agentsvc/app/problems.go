package app

import (
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
)

// problemList are what is wrong with a configuration.
type problemList []config.Problem

// errDependencyInvalid says that something cannot be built because of what it is made of, which has been told.
var errDependencyInvalid = errors.New("what it is made of is wrong")

// addProblem notes err, or each of those that it joins, about what stands at path. An [agentsvc.InvalidError] names a field
// below that.
func (m *problemList) addProblem(path string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			m.addProblem(path, err)
		}
		return
	}
	var invalid *agentsvc.InvalidError
	switch {
	case err == nil, errors.Is(err, errDependencyInvalid):
	case errors.As(err, &invalid) && invalid.Field != "":
		*m = append(*m, config.Problem{Path: path + "." + invalid.Field, Message: invalid.Reason})
	default:
		*m = append(*m, config.Problem{Path: path, Message: err.Error()})
	}
}

// asError returns all mistakes, nil if there are none.
func (m *problemList) asError() error {
	if len(*m) == 0 {
		return nil
	}
	return &config.Error{Problems: *m}
}
