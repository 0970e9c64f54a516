package sqltable

import (
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
)

// unreadableAccess is the access of a row whose access cannot be understood: no caller has this role.
var unreadableAccess = document.Access{Roles: []string{"(access is unreadable)"}}

// subjectPrefix marks a subject in a list of names.
const subjectPrefix = "subject:"

// parseAccess reads the value of an access column: a JSON object with subjects and roles, or a list with commas of roles
// and of subjects after subjectPrefix. NULL and an empty text are an open document. An error, which names nothing of the
// value, comes with an access that no caller has.
func parseAccess(value sql.NullString) (document.Access, error) {
	text := strings.TrimSpace(value.String)
	if text == "" {
		return document.Access{}, nil
	}
	var subjects, roles []string
	switch text[0] {
	case '{':
		var object struct {
			Subjects *[]string `json:"subjects"`
			Roles    *[]string `json:"roles"`
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&object); err != nil || d.More() {
			return unreadableAccess, errors.New("a JSON object may have the lists of text subjects and roles only")
		}
		if object.Subjects != nil {
			subjects = *object.Subjects
		}
		if object.Roles != nil {
			roles = *object.Roles
		}
		if object.Subjects == nil && object.Roles == nil || len(subjects)+len(roles) == 0 {
			return document.Access{}, nil
		}
	case '[', '"':
		return unreadableAccess, errors.New("JSON must be an object with the lists subjects and roles")
	default:
		for name := range strings.SplitSeq(text, ",") {
			if subject, ok := strings.CutPrefix(strings.TrimSpace(name), subjectPrefix); ok {
				subjects = append(subjects, subject)
			} else {
				roles = append(roles, name)
			}
		}
	}
	// Names that are all empty are no open document: something was meant.
	access := source.NewAccess(subjects, roles)
	if access.IsOpen() {
		return unreadableAccess, errors.New("it holds no name")
	}
	return access, nil
}
