package document

import "strings"

// SuggestWord returns the word of known that is most similar to word, "" if none is similar enough (one letter in
// three may differ).
func SuggestWord(word string, known []string) string {
	const longest = 64
	if word == "" || len(word) > longest {
		return ""
	}
	best, least := "", len(word)/3+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// editDistance returns the number of bytes to insert, delete, change or swap with their neighbour to turn a into b
// (optimal string alignment distance). It keeps three rows of the table.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
