"""What a failing output holds, read off its elements, in words."""
