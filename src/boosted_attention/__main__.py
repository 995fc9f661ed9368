from boosted_attention.cli.main import main

if __name__ == "__main__":  # worker processes import this module
    main()
