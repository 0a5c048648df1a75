package client

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The first program that a reader runs does what its comments say, and again.
func TestTheFirstProgramPrintsWhatItSays(t *testing.T) {
	page := string(must(os.ReadFile("../../../docs/tutorials/first-steps.md"))(t))
	program := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(page)[1]
	key := regexp.MustCompile("AccountKey=([^;]+)").FindStringSubmatch(program)[1]
	var expected []string
	for _, line := range regexp.MustCompile(`fmt\.Println\(.*\) // (.*)`).FindAllStringSubmatch(program, -1) {
		expected = append(expected, line[1])
	}
	if len(expected) != 2 {
		t.Fatalf("the program says that it prints %q", expected)
	}
	development := &server{folder: t.TempDir(), account: "devstoreaccount1", keys: [2]string{key, newKey()}}
	if err := development.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := development.stop(); err != nil {
			t.Error(err)
		}
	})
	adapted := strings.Replace(program, "http://127.0.0.1:10002", development.origin, 1)
	if adapted == program {
		t.Fatal("the program asks nobody")
	}
	binary := compiled(t, adapted)
	for range 2 {
		printed := string(must(exec.CommandContext(limited(t), binary).Output())(t))
		if lines := strings.Split(strings.TrimRight(printed, "\n"), "\n"); !slices.Equal(lines, expected) {
			t.Fatalf("the program printed %q", printed)
		}
	}
}

// compiled builds a program with what this module depends on.
func compiled(t *testing.T, program string) string {
	t.Helper()
	folder := t.TempDir()
	source, binary := filepath.Join(folder, "main.go"), filepath.Join(folder, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	// Linking takes longer than a test may, on a busy machine.
	ctx, cancel := context.WithTimeout(context.Background(), 4*testTime)
	defer cancel()
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return binary
}
