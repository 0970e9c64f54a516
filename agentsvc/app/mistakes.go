package app

import (
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
)

// mistakes are what is wrong with a configuration.
type mistakes []config.Problem

// errBelow says that something cannot be built because of what it is made of, which has been told.
var errBelow = errors.New("what it is made of is wrong")

// wrong notes err, or each of those that it joins, about what stands at path. An [agentsvc.InvalidError] names a field
// below that.
func (m *mistakes) wrong(path string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			m.wrong(path, err)
		}
		return
	}
	var invalid *agentsvc.InvalidError
	switch {
	case err == nil, errors.Is(err, errBelow):
	case errors.As(err, &invalid) && invalid.Field != "":
		*m = append(*m, config.Problem{Path: path + "." + invalid.Field, Message: invalid.Reason})
	default:
		*m = append(*m, config.Problem{Path: path, Message: err.Error()})
	}
}

// err returns all mistakes, nil if there are none.
func (m *mistakes) err() error {
	if len(*m) == 0 {
		return nil
	}
	return &config.Error{Problems: *m}
}
