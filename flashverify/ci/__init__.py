"""What a CI reads of a run: JUnit, SARIF, annotations and summary of GitHub, a comment for a pull request, a badge."""
