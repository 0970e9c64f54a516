package command

import (
	"fmt"
	"strings"
)

// shellSpecialChars are the characters that a shell would interpret outside quotes.
const shellSpecialChars = "|&;<>()$`\\\n\r"

// splitWords splits a line into words at spaces and tabs. Text in quotes is part of one word; in double quotes \" and
// \\ stand for the second character, in single quotes nothing is special. Outside quotes a character that a shell would
// interpret is an error, because the model that wrote it expects a shell.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	within := false // a word has begun; it may be empty
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
			// The quote does not end.
			if n == 0 {
				return nil, fmt.Errorf("command: the quote %c is not closed", c)
			}
			word.WriteString(text)
			within = true
			i += n - 1
		// Refused instead of passed on: the program would get the character as an argument, not what was meant.
		case strings.IndexByte(shellSpecialChars, c) >= 0:
			return nil, fmt.Errorf("command: %q needs a shell, and there is none; give one program, and arguments as they are in args or in quotes", c)
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

// readQuoted returns the text in the quotes with which line begins, and their length in bytes, 0 if they are not
// closed.
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
