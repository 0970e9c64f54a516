package command

import (
	"fmt"
	"strings"
)

// shellSpecialChars are the characters that mean something to a shell outside quotes and would mean nothing here.
const shellSpecialChars = "|&;<>()$`\\\n\r"

// splitWords separates a line into words at spaces and tabs. What stands in quotes belongs to one word; in double quotes \"
// and \\ stand for the character behind the backslash, in single quotes nothing stands for anything else. Outside quotes a
// character that a shell would act on is an error, since whoever wrote it expects one.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	within := false // a word, which may be empty
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == ' ' || c == '\t':
			if within {
				words = append(words, word.String())
				word.Reset()
				within = false
			}
		case c == '\'' || c == '"':
			text, n := readQuoted(line[i:])
			if n == 0 {
				return nil, fmt.Errorf("command: the quote %c is not closed", c)
			}
			word.WriteString(text)
			within = true
			i += n - 1
		case strings.IndexByte(shellSpecialChars, c) >= 0:
			return nil, fmt.Errorf("command: there is no shell that %q would mean anything to; give one program, and arguments as they are in args or in quotes", c)
		default:
			word.WriteByte(c)
			within = true
		}
	}
	if within {
		words = append(words, word.String())
	}
	return words, nil
}

// readQuoted returns the text in the quotes that line begins with, and how many bytes they span; 0 if they do not end.
func readQuoted(line string) (string, int) {
	var text strings.Builder
	for i := 1; i < len(line); i++ {
		switch {
		case line[i] == line[0]:
			return text.String(), i + 1
		case line[i] == '\\' && line[0] == '"' && i+1 < len(line) && strings.IndexByte(`"\`, line[i+1]) >= 0:
			i++
		}
		text.WriteByte(line[i])
	}
	return "", 0
}
